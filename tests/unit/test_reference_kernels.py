"""Kernels as the scheduler makes them, made by hand and run by the reference, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from vmapdbg.reference import kernels
from vmapdbg.reference.graph import OpNode, ScheduledKernel, Unknown
from vmapdbg.reference.value import RangedArray


class KernelMaker:
    """Makes one kernel over floats; argument 0 is what it writes."""

    def __init__(self, *arguments: ArrayLike):
        self.kernel = ScheduledKernel()
        arrays = [np.asarray(one, np.float32) for one in arguments]
        self.kernel.arguments = {number: self.add("buffer") for number in range(len(arrays))}
        self.contents = {number: array.ravel() for number, array in enumerate(arrays)}

    def add(self, op: str, *src: int, arg: Any = None, dtype: str = "float") -> int:
        return self.kernel.graph.add(OpNode(op, dtype, (), src, arg))

    def load(self, argument: int, place: int, *gates: int) -> int:
        return self.add("fetch", self.kernel.arguments[argument], place, *gates, arg=bool(gates))

    def loop(self, name: int, size: int) -> int:
        self.kernel.graph.ranges[name] = size
        return self.add("step", arg=(name, size), dtype="long")

    def number(self, value: int) -> int:
        return self.add("const", arg=value, dtype="long")

    def place(self, *parts: tuple[int, int]) -> int:
        """Returns a sum of loops, each times a stride."""
        terms = [self.add("mul", loop, self.number(stride), dtype="long") for loop, stride in parts]
        total = terms[0]
        for term in terms[1:]:
            total = self.add("add", total, term, dtype="long")
        return total

    def store(self, place: int, value: int, gate: int | None = None) -> None:
        sources = [self.kernel.arguments[0], value, place]
        if gate is not None:
            sources.append(gate)
        self.kernel.graph.roots.append(self.add("put", *sources, arg=gate is not None))

    def run(self) -> RangedArray:
        return kernels.run_kernel(self.kernel, self.contents)[0]

    def numbers(self) -> NDArray[Any]:
        written = self.run()
        assert written.undefined is None
        return written.numbers


def make_matmul(left: NDArray[Any], right: NDArray[Any]) -> KernelMaker:
    rows, deep, columns = *left.shape, right.shape[1]
    made = KernelMaker(np.zeros((rows, columns)), left, right)
    i, j, k = made.loop(1, rows), made.loop(2, columns), made.loop(0, deep)
    x = made.load(1, made.place((i, deep), (k, 1)))
    y = made.load(2, made.place((k, columns), (j, 1)))
    total = made.add("reduce", made.add("mul", x, y), arg=("add", (), True, (0,)))
    made.store(made.place((i, columns), (j, 1)), total)
    return made


LEFT, RIGHT = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5) - 7


def test_a_reduce_over_a_loop() -> None:
    assert make_matmul(LEFT, RIGHT).numbers().tolist() == (LEFT @ RIGHT).ravel().tolist()


@pytest.mark.parametrize("most", [4, 20, 40, 59])
def test_in_parts_it_is_the_same(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_IN_PART", most)
    made = make_matmul(LEFT, RIGHT)
    assert len(list(kernels.split(made.kernel))) > 1
    assert made.numbers().tolist() == (LEFT @ RIGHT).ravel().tolist()


def test_a_kernel_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_ELEMENTS", 59)
    with pytest.raises(Unknown, match="60 elements"):
        make_matmul(LEFT, RIGHT).run()
    monkeypatch.undo()
    # the reduce cannot be split
    monkeypatch.setattr(kernels, "MOST_IN_PART", 3)
    with pytest.raises(Unknown, match="4 elements at a time"):
        make_matmul(LEFT, RIGHT).run()


def test_a_padded_read_is_zero_where_it_is_not_made() -> None:
    made = KernelMaker(np.zeros(5), [1.0, 2.0, 3.0])
    i = made.loop(0, 5)
    place = made.add("add", i, made.number(-1), dtype="long")
    is_right = made.add("lt", i, made.number(4), dtype="bool")
    is_left = made.add("lt", made.number(0), i, dtype="bool")
    gate = made.add("and", is_left, is_right, dtype="bool")
    made.store(i, made.load(1, place, gate))
    assert made.numbers().tolist() == [0, 1, 2, 3, 0]


def test_a_read_outside_of_a_buffer_is_undefined() -> None:
    made = KernelMaker(np.zeros(4), [1.0, 2.0, 3.0])
    i = made.loop(0, 4)
    made.store(i, made.load(1, i))
    written = made.run()
    assert written.mask.tolist() == [False, False, False, True]
    assert written.numbers[:3].tolist() == [1, 2, 3]


def test_a_write_outside_of_a_buffer_is_refused() -> None:
    made = KernelMaker(np.zeros(3), np.arange(4.0))
    i = made.loop(0, 4)
    made.store(i, made.load(1, i))
    with pytest.raises(Unknown, match="outside"):
        made.run()


def test_of_a_lost_loop_the_last_step_stays() -> None:
    made = KernelMaker(np.zeros(2), np.arange(6.0))
    i, j = made.loop(0, 3), made.loop(1, 2)
    made.store(j, made.load(1, made.place((i, 2), (j, 1))))
    assert made.numbers().tolist() == [4, 5]


def test_unwritten_elements_stay() -> None:
    made = KernelMaker(np.full(4, 9.0), np.arange(4.0))
    i = made.loop(0, 4)
    gate = made.add("lt", i, made.number(2), dtype="bool")
    made.store(i, made.load(1, i), gate)
    assert made.numbers().tolist() == [0, 1, 9, 9]


def test_a_buffer_inside_of_the_kernel() -> None:
    """For each row: squares over a loop of their own, which are read twice."""
    numbers = np.arange(6.0).reshape(2, 3)
    made = KernelMaker(np.zeros(6), numbers)
    row, inner, total, out = made.loop(3, 2), made.loop(1, 3), made.loop(2, 3), made.loop(4, 3)
    x = made.load(1, made.place((row, 3), (inner, 1)))
    square = made.add("mul", x, x)
    held = made.kernel.graph.add(OpNode("close", "float", (3,), (square,), ((1,), None)))
    summed, own = made.add("fetch", held, total), made.add("fetch", held, out)
    whole = made.add("reduce", summed, arg=("add", (), True, (2,)))
    made.store(made.place((row, 3), (out, 1)), made.add("add", own, whole))
    expected = numbers**2 + (numbers**2).sum(1, keepdims=True)
    assert made.numbers().tolist() == expected.ravel().tolist()


def test_a_reduce_over_a_loop_that_its_value_does_not_have() -> None:
    made = KernelMaker(np.zeros(2), [1.0, 2.0])
    i, _ = made.loop(1, 2), made.loop(0, 5)
    made.store(i, made.add("reduce", made.load(1, i), arg=("add", (), True, (0,))))
    assert made.numbers().tolist() == [5, 10]


def test_a_buffer_that_is_read_where_it_is_not_written_is_refused() -> None:
    """a[i] = a[i] + 1 does not depend on the order of its steps, a[i] = a[n - 1 - i] does."""
    made = KernelMaker(np.arange(4.0))
    i = made.loop(0, 4)
    one = made.add("cast", made.number(1))
    made.store(i, made.add("add", made.load(0, i), one))
    assert made.numbers().tolist() == [1, 2, 3, 4]
    made = KernelMaker(np.arange(4.0))
    i = made.loop(0, 4)
    turned = made.add("sub", made.number(3), i, dtype="long")
    made.store(i, made.load(0, turned))
    with pytest.raises(Unknown, match="depends on the order"):
        made.run()


def test_contents_are_not_changed() -> None:
    made = KernelMaker(np.zeros(2), [1.0, 2.0])
    i = made.loop(0, 2)
    before = {number: array.tobytes() for number, array in made.contents.items()}
    made.store(i, made.load(1, i))
    made.run()
    assert {number: array.tobytes() for number, array in made.contents.items()} == before
    assert before[0] == bytes(8)
