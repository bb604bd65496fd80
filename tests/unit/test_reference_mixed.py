"""Graphs between the tensor graph and the kernels, made by hand and evaluated by the reference, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from vmapdbg.reference import kernels
from vmapdbg.reference.graph import OpGraph, OpNode, ScheduledKernel, Unknown
from vmapdbg.reference.kernels import LoopEvaluator
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import encode

DATA = np.arange(12.0).reshape(3, 4)


class GraphMaker:
    """Makes one graph over floats."""

    def __init__(self) -> None:
        self.graph = OpGraph()
        self.contents: dict[str, bytes] = {}

    def add(self, op: str, *src: int, arg: Any = None, shape: tuple[int, ...] = (), dtype: str = "float") -> int:
        return self.graph.add(OpNode(op, dtype, shape, src, arg))

    def buffer(self, data: ArrayLike) -> int:
        """Returns memory with these contents, in their shape."""
        array = encode(np.asarray(data, np.float32).ravel(), "float")
        name = f"input {len(self.contents)}"
        self.contents[name] = array.data
        flat = self.add("buffer", shape=array.shape)
        self.graph.inputs[flat] = (name,)
        return self.add("reshape", flat, shape=np.shape(data))

    def loop(self, name: int, size: int) -> int:
        self.graph.ranges[name] = size
        return self.add("step", arg=(name, size), dtype="long")

    def number(self, value: float, dtype: str = "long") -> int:
        return self.add("const", arg=value, dtype=dtype)

    def evaluate(self, slot: int) -> RangedArray:
        value = LoopEvaluator(self.graph, lambda name: self.contents[name]).evaluate([slot])[0]
        if isinstance(value, Unknown):
            raise value
        return value

    def numbers(self, slot: int) -> NDArray[Any]:
        value = self.evaluate(slot)
        assert value.undefined is None
        return value.numbers


@pytest.fixture
def made() -> GraphMaker:
    return GraphMaker()


def test_an_index_opens_axes_and_a_buffer_closes_them(made: GraphMaker) -> None:
    i, j = made.loop(0, 3), made.loop(1, 4)
    value = made.add("fetch", made.buffer(DATA), i, j)
    assert made.evaluate(value).ranges == (0, 1)
    turned = made.add("close", value, arg=((1, 0), None), shape=(4, 3))
    assert made.numbers(turned).tolist() == DATA.T.tolist()


def test_an_axis_of_size_one_is_closed_over_no_range(made: GraphMaker) -> None:
    i = made.loop(0, 3)
    value = made.add("fetch", made.buffer(DATA), i, made.number(1))
    held = made.add("close", value, arg=((None, 0), None), shape=(1, 3))
    assert made.numbers(held).tolist() == [DATA[:, 1].tolist()]


def test_an_index_may_leave_axes(made: GraphMaker) -> None:
    rows = made.add("fetch", made.buffer(DATA), made.number(2), shape=(4,))
    assert made.numbers(rows).tolist() == DATA[2].tolist()


def test_a_reduce_over_a_range(made: GraphMaker) -> None:
    i, j = made.loop(0, 3), made.loop(1, 4)
    value = made.add("fetch", made.buffer(DATA), i, j)
    total = made.add("reduce", value, arg=("add", (), False, (1,)))
    held = made.add("close", total, arg=((0,), ()), shape=(3,))
    assert made.numbers(held).tolist() == DATA.sum(1).tolist()


def test_memory_that_depends_on_a_step_has_the_last_one(made: GraphMaker) -> None:
    i, j = made.loop(0, 3), made.loop(1, 4)
    value = made.add("fetch", made.buffer(DATA), i, j)
    shared = made.add("close", value, arg=((1,), ()), shape=(4,))
    assert made.numbers(shared).tolist() == DATA[2].tolist()
    # what a later pass takes away is no memory
    inlined = made.add("close", value, arg=((1,), None), shape=(4,))
    assert made.evaluate(inlined).ranges == (0,)


def test_what_an_invalid_index_reads_is_undefined(made: GraphMaker) -> None:
    i = made.loop(0, 4)
    is_valid = made.add("lt", i, made.number(2), dtype="bool")
    place = made.add("where", is_valid, i, made.add("invalid", dtype="long"), dtype="long")
    value = made.evaluate(made.add("fetch", made.buffer([1, 2, 3, 4]), place))
    assert value.mask.tolist() == [False, False, True, True]
    padded = made.add("where", is_valid, made.add("fetch", made.buffer([1, 2, 3, 4]), place), made.number(0, "float"))
    assert made.numbers(padded).tolist() == [1, 2, 0, 0]


def test_a_read_beyond_the_end_is_undefined(made: GraphMaker) -> None:
    i = made.loop(0, 4)
    place = made.add("sub", i, made.number(1), dtype="long")
    value = made.evaluate(made.add("fetch", made.buffer([1, 2, 3, 4]), place))
    assert value.mask.tolist() == [True, False, False, False]
    assert value.numbers[1:].tolist() == [1, 2, 3]


def test_a_store_writes_where_its_index_is_valid(made: GraphMaker) -> None:
    i = made.loop(0, 4)
    is_valid = made.add("lt", i, made.number(2), dtype="bool")
    place = made.add("where", is_valid, i, made.add("invalid", dtype="long"), dtype="long")
    value = made.add("cast", i)
    after = made.add("put", made.buffer([9, 9, 9, 9]), value, place, shape=(4,))
    assert made.numbers(after).tolist() == [0, 1, 9, 9]


def test_of_two_values_for_one_place_the_last_stays(made: GraphMaker) -> None:
    i, j = made.loop(0, 3), made.loop(1, 4)
    value = made.add("fetch", made.buffer(DATA), i, j)
    after = made.add("put", made.buffer([0, 0, 0, 0]), value, j, shape=(4,))
    assert made.numbers(after).tolist() == DATA[2].tolist()


def test_unwritten_memory_is_undefined(made: GraphMaker) -> None:
    new = made.add("buffer", shape=(3,))
    assert made.evaluate(new).mask.all()
    i = made.loop(0, 2)
    after = made.evaluate(made.add("put", new, made.add("cast", i), i, shape=(3,)))
    assert after.mask.tolist() == [False, False, True]


def test_a_store_outside_of_memory_is_refused(made: GraphMaker) -> None:
    i = made.loop(0, 4)
    after = made.add("put", made.buffer([0, 0]), made.add("cast", i), i, shape=(2,))
    with pytest.raises(Unknown, match="writes outside of its buffer"):
        made.evaluate(after)


def make_doubling() -> ScheduledKernel:
    """Argument 0 becomes twice argument 1."""
    kernel = ScheduledKernel()
    graph = kernel.graph
    kernel.arguments = {number: graph.add(OpNode("buffer", "float", ())) for number in (0, 1)}
    graph.ranges[0] = 4
    loop = graph.add(OpNode("step", "long", (), (), (0, 4)))
    loaded = graph.add(OpNode("fetch", "float", (), (kernel.arguments[1], loop), False))
    doubled = graph.add(OpNode("add", "float", (), (loaded, loaded)))
    graph.roots.append(graph.add(OpNode("put", "float", (), (kernel.arguments[0], doubled, loop), False)))
    return kernel


def test_a_kernel_is_launched(made: GraphMaker) -> None:
    out, data = made.add("buffer", shape=(4,)), made.buffer([1, 2, 3, 4])
    after = made.add("launch", out, data, arg=(make_doubling(), 0, (0, 1)), shape=(4,))
    assert made.numbers(after).tolist() == [2, 4, 6, 8]


def test_a_kernel_that_reads_unwritten_memory_is_refused(made: GraphMaker) -> None:
    out, data = made.add("buffer", shape=(4,)), made.add("buffer", shape=(4,))
    after = made.add("launch", out, data, arg=(make_doubling(), 0, (0, 1)), shape=(4,))
    with pytest.raises(Unknown, match="memory that was never written"):
        made.evaluate(after)


def test_what_takes_too_much_is_refused(made: GraphMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_AT_ONCE", 11)
    value = made.add("fetch", made.buffer(DATA), made.loop(0, 3), made.loop(1, 4))
    twice = made.add("add", value, value)
    with pytest.raises(Unknown, match="12 elements at a time"):
        made.evaluate(twice)
