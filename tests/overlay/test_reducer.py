"""`bisect --reduce`. A failure means that it denies a difference that `bisect` found, that it stops at a program that
is larger than necessary, or that it tries programs that are not smaller."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from captures import make_capture, make_schedule
from hypothesis import given
from hypothesis import strategies as st
from tinygrad import Tensor, dtypes
from tinygrad.uop.ops import UOp

from vmapdbg.bisect.outcome import Outcomes
from vmapdbg.child.listen.values_and_times import sample_values
from vmapdbg.child.memory import find_changed, read_switches
from vmapdbg.child.reduce.reducer import VALUES, find_difference, find_fault
from vmapdbg.child.reduce.smaller import (
    earlier_outputs,
    fewer_outputs,
    list_replacements,
    list_sources,
    measure,
    replace_node,
    replacements_of,
)
from vmapdbg.child.reduce.trial import GraphTrial
from vmapdbg.diff.values import estimate_terms
from vmapdbg.install.job import Run
from vmapdbg.model.capture import Output, Range
from vmapdbg.values.tolerance import EPSILON, make_tolerance

DTYPES = {"float": np.float32, "double": np.float64, "half": np.float16}


def make_output(numbers: np.ndarray, dtype: str) -> Output:
    data = numbers.astype(DTYPES[dtype]).tobytes()
    return Output(numbers.shape, dtype, hashlib.sha256(data).hexdigest(), sample_values(data, dtype))


def differ_for_bisect(one: Output, other: Output, sizes: tuple[int, int]) -> bool:
    """`sizes` are the sizes of the largest reduce on either side."""
    outcomes = Outcomes("values", lambda capture: ())
    names = []
    for output, size in zip((one, other), sizes, strict=True):
        schedule = make_schedule(outputs=(output,), ranges=(Range("r0", size, "REDUCE", False),))
        names.append(outcomes.sort_in(Run(make_capture(schedule))))
    return names[0] != names[1]


def differ_for_reducer(one: Output, other: Output, size: int) -> bool:
    (terms,) = estimate_terms([make_schedule(ranges=(Range("r0", size, "REDUCE", False),))])
    trials = [GraphTrial("it runs", (), (output,)) for output in (one, other)]
    return find_difference(trials[0], trials[1], "values", terms) == "values"


@given(
    st.sampled_from(sorted(DTYPES)),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.integers(1, 3000),
    st.floats(0.9, 1.1),
    st.sampled_from([1.0, 1e-3, 0.0]),
)
def test_the_reducer_sees_what_bisect_sees(
    dtype: str, here: int, there: int, count: int, share: float, value: float
) -> None:
    """One element is off by about as much as the tolerance lets pass, up or down by a tenth."""
    right = np.linspace(0.5, 1.0, count)
    right[0] = value
    wrong = right.copy()
    tolerance = make_tolerance(dtype, max(here, there), 1.0)
    wrong[0] += share * (tolerance.relative * value + tolerance.absolute)
    one, other = make_output(right, dtype), make_output(wrong, dtype)
    if differ_for_bisect(one, other, (here, there)):
        # the reducer knows the schedule of one side
        assert differ_for_reducer(one, other, here)
        assert differ_for_reducer(other, one, there)
    # and where both sides sum up as much, neither sees more than the other
    assert differ_for_bisect(one, other, (here, here)) == differ_for_reducer(one, other, here)


@pytest.mark.parametrize(("share", "differs"), [(0.9, False), (1.1, True)])
def test_the_borderline_is_that_of_check(share: float, differs: bool) -> None:
    relative = EPSILON["float"] * (16 + 4 * 100)
    one = make_output(np.array([1.0]), "float")
    other = make_output(np.array([1.0 + 1.01 * share * relative]), "float")
    assert differ_for_bisect(one, other, (10_000, 10_000)) == differs
    assert differ_for_reducer(one, other, 10_000) == differs


def floats(numbers: list[int]) -> bytes:
    return np.array(numbers, np.float32).tobytes()


@pytest.mark.parametrize(
    ("stored", "fault"), [([1, 2], None), ([1, 3], None), ([1, 2, 1, 2], None), ([1, 2, 1, 3], VALUES)]
)
def test_what_an_output_repeats_may_be_stored_once(stored: list[int], fault: str | None) -> None:
    """An expanded value has a buffer of its own elements alone: that is no wrong value."""
    root = (Tensor([[1.0, 2.0]]).realize().expand(2, 2) * 1.0).uop
    assert find_fault(GraphTrial("it runs", (), (None,), contents=(floats(stored),)), [root]) == fault


def test_a_permuted_output_is_compared_in_the_order_of_its_memory() -> None:
    value = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize() * 2
    got = floats([2, 4, 6, 8])
    assert find_fault(GraphTrial("it runs", (), (None,), contents=(got,)), [value.permute(1, 0).uop]) is None


def test_switches_that_are_as_they_are_here_are_none_of_the_snippets() -> None:
    here = read_switches()
    assert "PCONTIG" in here
    assert "DEBUG" not in here
    # a sample of a module that is not imported here
    assert find_changed({**here, "PCONTIG": 2, "SQTT": 1}) == {"PCONTIG": 2}


# *** what it puts in the place of nodes


def make() -> tuple[Tensor, Tensor]:
    """A sum and its readers; the sum is read twice."""
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    total = (x * 2).sum(1)
    return total, (total + 1) * total


def test_what_removes_most_comes_first() -> None:
    """Only then a large graph becomes a small one in few trials."""
    _, out = make()
    tried = list(dict.fromkeys(u for u, _ in list_replacements([out.uop])))
    assert set(tried[:2]) == set(out.uop.src)
    for u in tried:
        assert all(tried.index(s) > tried.index(u) for s in u.src if s in tried)


def test_replacements_have_the_shape_and_dtype_of_the_node() -> None:
    _, out = make()
    ways = list(list_replacements([out.uop]))
    assert {"BUFFER", "CONST"} <= {v.op.name for _, made in ways for v in made.toposort()}
    for u, made in ways:
        assert (made.shape, made.dtype) == (u.shape, u.dtype)
        (smaller,) = replace_node([out.uop], u, made)
        assert smaller.shape == out.uop.shape


def test_an_input_for_a_node_is_the_same_when_it_is_asked_for_again() -> None:
    total, _ = make()
    assert replacements_of(total.uop)[0] is replacements_of(total.uop)[0]


def test_a_chain_of_movements_and_casts_has_a_way_past_it() -> None:
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    chain = x.pad(((0, 2), (0, 0))).reshape(12).shrink(((0, 6),)).reshape(2, 3)
    made = list_sources(chain.uop)
    assert any(measure([one])[0] < measure([chain.uop])[0] - 2 for one in made)
    casts = x.cast(dtypes.int).cast(dtypes.bool).cast(dtypes.float)
    assert x.uop in list_sources(casts.uop)


def test_outputs_are_left_out_one_by_one_and_in_halves() -> None:
    roots = [Tensor([float(i)]).realize().uop for i in range(4)]
    tried = [tuple(made) for made in fewer_outputs(roots)]
    assert all((root,) in tried for root in roots)
    assert (roots[0], roots[1]) in tried
    assert (roots[0], roots[1], roots[3]) in tried


def test_of_many_earlier_values_some_far_apart_come_first() -> None:
    u: UOp = Tensor([1.0, 2.0]).realize().uop
    for _ in range(300):
        u = u + u
    tried = [len(made[0].toposort()) for made in earlier_outputs([u])]
    assert max(tried[:20]) > 250
    assert sorted(set(tried)) == sorted(tried)


def test_a_constant_is_smaller_than_the_node_it_replaces() -> None:
    total, out = make()
    (smaller,) = replace_node([out.uop], total.uop, total.uop.const_like(1))
    assert measure([smaller]) < measure([out.uop])
