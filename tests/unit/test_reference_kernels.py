"""Graphs between the tensor graph and the kernels: made by hand, evaluated by the reference, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference_graphs import Maker

from vmapdbg.reference import kernels
from vmapdbg.reference.arithmetic import Rounding
from vmapdbg.reference.graph import Unknown

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
    return made.add("launch", out, data, arg=(lambda contents: 2 * contents[1], {0}), shape=(4,))


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
