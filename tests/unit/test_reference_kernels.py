"""Kernels as the scheduler makes them, and graphs between the tensor graph and the kernels: made by hand, evaluated by
the reference, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from reference_graphs import Maker

from vmapdbg.reference import kernels
from vmapdbg.reference.arithmetic import Rounding
from vmapdbg.reference.graph import ScheduledKernel, Unknown
from vmapdbg.reference.value import RangedArray


class KernelMaker(Maker):
    """Makes one kernel over floats; argument 0 is what it writes."""

    def __init__(self, *arguments: ArrayLike):
        super().__init__()
        self.kernel = ScheduledKernel(self.graph)
        arrays = [np.asarray(one, np.float32) for one in arguments]
        self.kernel.arguments = {number: self.add("buffer") for number in range(len(arrays))}
        self.memory = {number: array.ravel() for number, array in enumerate(arrays)}

    def load(self, argument: int, place: int, *gates: int) -> int:
        return self.add("fetch", self.kernel.arguments[argument], place, *gates, arg=bool(gates))

    def number(self, value: int) -> int:
        return self.const(value, "long")

    def place(self, *parts: tuple[int, int]) -> int:
        """Returns a sum of loops, each times a stride."""
        terms = [self.add("mul", loop, self.number(stride), dtype="long") for loop, stride in parts]
        total = terms[0]
        for term in terms[1:]:
            total = self.add("add", total, term, dtype="long")
        return total

    def store(self, place: int, value: int, *gates: int) -> None:
        self.graph.roots.append(self.add("put", self.kernel.arguments[0], value, place, *gates, arg=bool(gates)))

    def run(self) -> RangedArray:
        return kernels.run_kernel(self.kernel, self.memory)[0]

    def written(self) -> list[float]:
        """Runs the kernel, and returns what it writes, all of it defined."""
        found = self.run()
        assert found.undefined is None
        return found.numbers.tolist()


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
    assert make_matmul(LEFT, RIGHT).written() == (LEFT @ RIGHT).ravel().tolist()


@pytest.mark.parametrize("most", [4, 20, 40, 59])
def test_in_parts_it_is_the_same(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_IN_PART", most)
    made = make_matmul(LEFT, RIGHT)
    assert len(list(kernels.split(made.kernel))) > 1
    assert made.written() == (LEFT @ RIGHT).ravel().tolist()


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
    assert made.written() == [0, 1, 2, 3, 0]


def test_a_read_outside_of_a_buffer_is_undefined_and_a_write_refused() -> None:
    made = KernelMaker(np.zeros(4), [1.0, 2.0, 3.0])
    i = made.loop(0, 4)
    made.store(i, made.load(1, i))
    written = made.run()
    assert written.mask.tolist() == [False, False, False, True]
    assert written.numbers[:3].tolist() == [1, 2, 3]
    made.memory[0] = made.memory[0][:3]
    with pytest.raises(Unknown, match="writes outside of its buffer"):
        made.run()


def test_of_a_lost_loop_the_last_step_stays_and_so_do_unwritten_elements() -> None:
    made = KernelMaker(np.zeros(2), np.arange(6.0))
    i, j = made.loop(0, 3), made.loop(1, 2)
    made.store(j, made.load(1, made.place((i, 2), (j, 1))))
    assert made.written() == [4, 5]
    made = KernelMaker(np.full(4, 9.0), np.arange(4.0))
    i = made.loop(0, 4)
    gate = made.add("lt", i, made.number(2), dtype="bool")
    made.store(i, made.load(1, i), gate)
    assert made.written() == [0, 1, 9, 9]


def test_a_buffer_inside_of_the_kernel() -> None:
    """For each row: squares over a loop of their own, which are read twice."""
    numbers = np.arange(6.0).reshape(2, 3)
    made = KernelMaker(np.zeros(6), numbers)
    row, inner, total, out = made.loop(3, 2), made.loop(1, 3), made.loop(2, 3), made.loop(4, 3)
    x = made.load(1, made.place((row, 3), (inner, 1)))
    square = made.add("mul", x, x)
    held = made.add("close", square, arg=((1,), None), shape=(3,))
    summed, own = made.add("fetch", held, total), made.add("fetch", held, out)
    whole = made.add("reduce", summed, arg=("add", (), True, (2,)))
    made.store(made.place((row, 3), (out, 1)), made.add("add", own, whole))
    expected = numbers**2 + (numbers**2).sum(1, keepdims=True)
    assert made.written() == expected.ravel().tolist()


def test_a_reduce_over_a_loop_that_its_value_does_not_have_changes_no_contents() -> None:
    made = KernelMaker(np.zeros(2), [1.0, 2.0])
    i, _ = made.loop(1, 2), made.loop(0, 5)
    before = {number: array.tobytes() for number, array in made.memory.items()}
    made.store(i, made.add("reduce", made.load(1, i), arg=("add", (), True, (0,))))
    assert made.written() == [5, 10]
    assert {number: array.tobytes() for number, array in made.memory.items()} == before
    assert before[0] == bytes(8)


def test_a_buffer_that_is_read_where_it_is_not_written_is_refused() -> None:
    """a[i] = a[i] + 1 does not depend on the order of its steps, a[i] = a[n - 1 - i] does."""
    made = KernelMaker(np.arange(4.0))
    i = made.loop(0, 4)
    one = made.add("cast", made.number(1))
    made.store(i, made.add("add", made.load(0, i), one))
    assert made.written() == [1, 2, 3, 4]
    made = KernelMaker(np.arange(4.0))
    i = made.loop(0, 4)
    turned = made.add("sub", made.number(3), i, dtype="long")
    made.store(i, made.load(0, turned))
    with pytest.raises(Unknown, match="depends on the order"):
        made.run()


# *** graphs between the tensor graph and the kernels

DATA = np.arange(12.0).reshape(3, 4)


class LoopMaker(Maker):
    """Makes one graph with loops."""

    def evaluator(self, rounding: Rounding | None = None, **options: Any) -> kernels.LoopEvaluator:
        return kernels.LoopEvaluator(self.graph, self.contents.__getitem__, rounding, **options)


@pytest.fixture
def made() -> LoopMaker:
    return LoopMaker()


def test_an_index_opens_axes_and_a_buffer_closes_them(made: LoopMaker) -> None:
    i, j = made.loop(0, 3), made.loop(1, 4)
    value = made.add("fetch", made.input(DATA, "float"), i, j)
    assert made.value(value).ranges == (0, 1)
    turned = made.add("close", value, arg=((1, 0), None), shape=(4, 3))
    assert made.numbers(turned).tolist() == DATA.T.tolist()
    # memory that depends on a step has the last one
    shared = made.add("close", value, arg=((1,), ()), shape=(4,))
    assert made.numbers(shared).tolist() == DATA[2].tolist()
    # what a later pass takes away is no memory
    inlined = made.add("close", value, arg=((1,), None), shape=(4,))
    assert made.value(inlined).ranges == (0,)


def test_an_index_may_leave_axes_and_an_axis_of_one_is_closed_over_no_range(made: LoopMaker) -> None:
    rows = made.add("fetch", made.input(DATA, "float"), made.const(2, "long"), shape=(4,))
    assert made.numbers(rows).tolist() == DATA[2].tolist()
    i = made.loop(0, 3)
    value = made.add("fetch", made.input(DATA, "float"), i, made.const(1, "long"))
    held = made.add("close", value, arg=((None, 0), None), shape=(1, 3))
    assert made.numbers(held).tolist() == [DATA[:, 1].tolist()]


def test_what_an_index_reads_that_is_invalid_or_outside_is_undefined(made: LoopMaker) -> None:
    i, numbers = made.loop(0, 4), made.input([1, 2, 3, 4], "float")
    before = made.add("sub", i, made.const(1, "long"), dtype="long")
    outside = made.value(made.add("fetch", numbers, before))
    assert outside.mask.tolist() == [True, False, False, False]
    assert outside.numbers[1:].tolist() == [1, 2, 3]
    is_valid = made.add("lt", i, made.const(2, "long"), dtype="bool")
    place = made.add("where", is_valid, i, made.add("invalid", dtype="long"), dtype="long")
    read = made.add("fetch", numbers, place)
    assert made.value(read).mask.tolist() == [False, False, True, True]
    padded = made.value(made.add("where", is_valid, read, made.const(0, "float")))
    assert padded.undefined is None
    assert padded.numbers.tolist() == [1, 2, 0, 0]
    written = made.add("put", made.input([9, 9, 9, 9], "float"), made.add("cast", i), place, shape=(4,))
    assert made.numbers(written).tolist() == [0, 1, 9, 9]


def test_unwritten_memory_is_undefined(made: LoopMaker) -> None:
    new = made.add("buffer", shape=(3,))
    assert made.value(new).mask.all()
    i = made.loop(0, 2)
    after = made.value(made.add("put", new, made.add("cast", i), i, shape=(3,)))
    assert after.mask.tolist() == [False, False, True]


def launch_doubling(made: LoopMaker, out: int, data: int) -> int:
    """Launches a kernel that makes the first argument twice the second."""
    kernel = KernelMaker([0] * 4, [0] * 4)
    i = kernel.loop(0, 4)
    loaded = kernel.load(1, i)
    kernel.store(i, kernel.add("add", loaded, loaded))
    return made.add("launch", out, data, arg=(kernel.kernel, 0, (0, 1)), shape=(4,))


def test_a_kernel_is_launched_unless_it_reads_unwritten_memory(made: LoopMaker) -> None:
    out, unwritten = made.add("buffer", shape=(4,)), made.add("buffer", shape=(4,))
    assert made.numbers(launch_doubling(made, out, made.input([1, 2, 3, 4], "float"))).tolist() == [2, 4, 6, 8]
    with pytest.raises(Unknown, match="memory that was never written"):
        made.value(launch_doubling(made, out, unwritten))


def test_what_takes_too_much_is_refused(made: LoopMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_AT_ONCE", 11)
    value = made.add("fetch", made.input(DATA, "float"), made.loop(0, 3), made.loop(1, 4))
    twice = made.add("add", value, value)
    with pytest.raises(Unknown, match="12 elements at a time"):
        made.value(twice)
