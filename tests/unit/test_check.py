"""Comparing values: tolerance, NaN, patterns, and the cause of a wrong buffer.

A failure means that `check` calls a right value wrong, misses a wrong value, or describes it wrongly.
"""

from __future__ import annotations

import array
import json
import math
import random
import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from captures import lost_range
from hypothesis import given
from hypothesis import strategies as st

from vmapdbg.check import result
from vmapdbg.check.compare import compare, excuse_rounding
from vmapdbg.check.findings import CRASHES, FAILS, OVERWRITTEN, STALE_READ, WRONG_VALUE
from vmapdbg.check.result import CheckReport, Comparison, OutputCheck, OverwrittenInput, ScheduleCheck
from vmapdbg.child.compare.first_wrong_buffer import find_steps_read
from vmapdbg.child.compare.kernel_rerun import align_buffer
from vmapdbg.child.evidence.evidence import WrittenBuffer
from vmapdbg.model.capture import Finding, SnippetError
from vmapdbg.model.crash import Crash
from vmapdbg.model.store import build_data, dump_compact
from vmapdbg.model.vocabulary import CrashStage
from vmapdbg.page.check_sentences import add_pattern_sentences, describe_pattern, make_findings
from vmapdbg.reference.graph import Unknown
from vmapdbg.values.numbers import Array, decode, find_close, find_index
from vmapdbg.values.tolerance import make_tolerance


def doubles(values: Sequence[float], *shape: int) -> Array:
    return Array(array.array("d", values).tobytes(), "double", shape or (len(values),))


def floats(values: Sequence[float], *shape: int) -> Array:
    return Array(array.array("f", values).tobytes(), "float", shape or (len(values),))


def ints(values: Sequence[int], *shape: int) -> Array:
    return Array(array.array("i", values).tobytes(), "int", shape or (len(values),))


# *** numbers


def test_small_floats_are_read_and_an_array_must_have_its_bytes() -> None:
    bfloat = b"".join(struct.pack("f", x)[2:] for x in (1.0, -2.5, math.inf))
    assert list(decode(Array(bfloat, "bfloat16", (3,)))) == [1.0, -2.5, math.inf]
    # sign, exponent, mantissa: 0 1111 110 is the largest e4m3, 0 1111 111 its NaN
    e4m3 = decode(Array(bytes([0x38, 0x7E, 0x01, 0x7F, 0xB8]), "fp8e4m3", (5,))).tolist()
    assert e4m3[:3] == [1.0, 448.0, 2.0**-9]
    assert math.isnan(e4m3[3])
    assert e4m3[4] == -1.0
    e5m2 = decode(Array(bytes([0x3C, 0x7B, 0x01, 0x7C, 0xFC]), "fp8e5m2", (5,))).tolist()
    assert e5m2 == [1.0, 57344.0, 2.0**-16, math.inf, -math.inf]
    with pytest.raises(ValueError, match="8 bytes for float"):
        Array(bytes(8), "float", (3,))


# *** comparing


def test_integers_and_nan_are_compared_exactly_and_small_floats_next_to_large_ones() -> None:
    found = compare(ints([1, 2, 3]), ints([1, 2, 4]), terms=10**6)
    assert (found.status, found.wrong, found.index, found.got, found.expected) == ("wrong", 1, (2,), 3, 4)
    assert found.tolerance.relative == 0
    expected = [1000.0] * 7 + [0.01]
    assert compare(floats([*expected[:7], 0.02]), floats(expected), 100).wrong == 1
    nan, inf = math.nan, math.inf
    assert compare(floats([nan, 1, inf]), floats([nan, 1, inf]), 0).status == "equal"
    assert compare(floats([1, nan]), floats([nan, 1]), 0).wrong == 2
    assert compare(floats([nan]), floats([1]), 0).got == "nan"
    assert compare(floats([inf]), floats([-inf]), 0).expected == "-inf"
    assert compare(floats([inf, 1]), floats([3e38, 1]), 10**9).wrong == 1
    # NaN of another sign or payload is NaN
    assert compare(Array(bytes.fromhex("0100c0ff"), "float", (1,)), floats([nan]), 0).status == "equal"
    # zeros of both signs are equal
    assert compare(floats([-0.0, 0.0]), floats([0.0, -0.0]), 0).status == "equal"


def test_a_float_and_an_integer_agree_within_the_tolerance_of_the_float() -> None:
    """A rewrite may compute the same value in another dtype."""
    floats, integers = np.array([1.0 + 1e-7, 2.5, np.nan]), np.array([1, 2, 3])
    tolerance = make_tolerance("float", 1, 1.0)
    assert find_close(floats, integers, tolerance).tolist() == [True, False, False]
    assert find_close(integers, floats, tolerance).tolist() == [True, False, False]
    assert find_close(integers, np.array([1, 3, 3]), tolerance).tolist() == [True, False, True]


def test_tolerance_grows_with_the_root_of_the_roundings() -> None:
    one, many = make_tolerance("float", 0, 1.0), make_tolerance("float", 10_000, 1.0)
    assert one.relative == 16 * 2**-23
    assert many.relative == (16 + 400) * 2**-23
    off = 1 + 20 * 2**-23
    assert compare(floats([off]), floats([1.0]), 0).status == "wrong"
    assert compare(floats([off]), floats([1.0]), 10_000).status == "close"


def excuse(
    got: Sequence[float], expected: Sequence[float], exact: Sequence[float], spread: Sequence[float], terms: int = 4
) -> Comparison:
    """Excuses what rounding explains: `exact` has the values in double precision, `spread` how far each moves."""
    found = compare(floats(got), floats(expected), terms)
    assert found.status == "wrong"
    return excuse_rounding(floats(got), floats(expected), found, [np.array(exact), np.add(exact, spread)])


def test_rounding_and_wrong_values_are_distinguished() -> None:
    """What is left of two large numbers: both runs are off by as much as the inputs round."""
    assert excuse([3e-5, 1.0], [-2e-5, 1.0], [0.0, 1.0], [1e-5, 1e-7]).status == "rounding"
    again = excuse([3e-5, 1.5], [-2e-5, 1.0], [0.0, 1.0], [1e-5, 1e-7])
    assert (again.status, again.wrong, again.index) == ("wrong", 1, (1,))


def test_an_element_that_moved_little_by_chance_is_taken_to_move_as_others_do() -> None:
    got, expected = [3e-5, 1.0, 2.0], [0.0, 1.0, 2.0]
    assert excuse(got, expected, expected, [1e-9, 5e-6, 6e-6]).status == "rounding"
    assert excuse(got, expected, expected, [1e-9, 1e-9, 6e-6]).status == "wrong"


def test_an_element_is_taken_to_move_by_the_share_of_its_value_that_others_do() -> None:
    """After an exp of sums each moves by the same share, whatever its size: 26 elements of a softmax were wrong."""
    exact, spread = [1.0, 1e-3, 1e-4, 1e-5], [1e-8, 2e-8, 2e-9, 2e-10]
    assert excuse([1.0 + 6e-5, *exact[1:]], exact, exact, spread, 0).status == "rounding"
    assert excuse([1.0 + 1.2e-4, *exact[1:]], exact, exact, spread, 0).status == "wrong"
    # however much the others move: they may be what is left of larger numbers
    assert excuse([1.001, *exact[1:]], exact, exact, [1e-8, 1e-6, 1e-4, 1e-5], 0).status == "wrong"


def test_a_value_that_is_right_where_a_step_to_the_expected_one_is_too_large_is_excused() -> None:
    """The gradient of a sigmoid is 0 * inf where its exp is too large, and tinygrad computes it without that."""
    got, expected = [0.0, 1.0], [math.nan, math.inf]
    assert excuse(got, expected, [1e-174, 1.0], [0.0, 0.0]).status == "rounding"
    assert excuse(got, expected, [1e-30, 1.0], [0.0, 0.0]).wrong == 1
    assert excuse(got, expected, [math.nan, math.inf], [0.0, 0.0]).wrong == 2
    # NaN is never excused
    assert excuse([math.nan], [1.0], [1.0], [1e30]).status == "wrong"


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_equal_bytes_are_equal(values: list[float]) -> None:
    assert compare(floats(values), floats(values), 0).status == "equal"


# *** patterns

_chance = random.Random(1)
RIGHT = [_chance.uniform(-4, 4) for _ in range(24)]


def describe(found: Comparison) -> str | None:
    return None if found.pattern_data is None else describe_pattern(found.pattern_data)


def pattern(change: object, shape: tuple[int, ...] = (4, 3, 2)) -> str | None:
    size = math.prod(shape)
    place = {find_index(i, shape): i for i in range(size)}
    wrong = [change(index, lambda *at: RIGHT[place[at]]) for index in place]  # type: ignore[operator]
    return describe(compare(doubles(wrong, *shape), doubles(RIGHT[:size], *shape), 4))


SUM_OF_3 = "along axis 1 each slice is the sum of all 3"
PATTERNS = {
    "last": (lambda i, right: right(3, i[1], i[2]), "along axis 0 all 4 slices are the last one"),
    "first": (lambda i, right: right(i[0], 0, i[2]), "along axis 1 all 3 slices are the first one"),
    "middle": (lambda i, right: right(2, i[1], i[2]), "along axis 0 all 4 slices are the number 2 one"),
    "zero": (lambda i, right: 0.0, "every element is zero"),
    "nan": (lambda i, right: math.nan, "every element is NaN"),
    "reversed": (lambda i, right: right(3 - i[0], i[1], i[2]), "axis 0 is reversed"),
    "around": (lambda i, right: right((i[0] + 1) % 4, i[1], i[2]), "shifted by +1 along axis 0, going around"),
    "shifted": (lambda i, right: right(i[0] - 1, i[1], i[2]) if i[0] else 9.0, "shifted by -1 along axis 0"),
    "summed": (lambda i, right: sum(right(i[0], k, i[2]) for k in range(3)), SUM_OF_3),
    "one slice": (lambda i, right: 7.0 if i[1] == 1 else right(*i), "only in slice 1 along axis 1"),
    "last slice": (
        lambda i, right: 0.0 if i[0] == 3 else right(*i),
        "only in slice 3 (the last) along axis 0, where it is zero",
    ),
    "all but the last": (
        lambda i, right: right(*i) * 1.5 + i[2] if i[0] < 3 else right(*i),
        "along axis 0 all slices but the last are wrong",
    ),
    "no pattern": (lambda i, right: right(*i) + 1 + i[0] * i[1] + i[2] / 7, None),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str) -> None:
    change, expected = PATTERNS[name]
    assert pattern(change) == expected


def test_swapped_axes() -> None:
    shape = (3, 3)
    assert pattern(lambda i, right: right(i[1], i[0]), shape) == "axes 0 and 1 are swapped"
    flat = [RIGHT[j * 3 + i] for i in range(3) for j in range(2)]
    found = compare(doubles(flat, 2, 3), doubles(RIGHT[:6], 2, 3), 4)
    assert describe(found) == "axes 0 and 1 are swapped (the order of the elements, in the same shape)"


def test_patterns_of_integers_that_wrap_around_and_of_a_million_elements() -> None:
    right = [100, -3, 7, 50, 0, 90]
    expected = Array(np.array(right, np.int8).tobytes(), "char", (3, 2))
    columns = [(100 + 7 + 0 + 128) % 256 - 128, (-3 + 50 + 90 + 128) % 256 - 128]
    summed = Array(np.array(columns * 3, np.int8).tobytes(), "char", (3, 2))
    assert describe(compare(summed, expected, 4)) == "along axis 0 each slice is the sum of all 3"
    # the limit was a tenth of that
    right = np.random.default_rng(0).standard_normal((1000, 1000), np.float32)
    shifted = np.roll(right, 3, axis=1)
    got, expected = (Array(side.tobytes(), "float", (1000, 1000)) for side in (shifted, right))
    assert describe(compare(got, expected, 4)) == "shifted by -3 along axis 1, going around"


def test_the_report_has_the_sentence_next_to_the_data() -> None:
    report = add_pattern_sentences(CheckReport((wrong_check(),)))
    found = report.schedules[0].outputs[0].comparison
    assert found.pattern == "along axis 0 all 3 slices are the last one"
    assert found.pattern_data is not None
    assert (found.pattern_data.rule, found.pattern_data.axis, found.pattern_data.first) == ("repeated", 0, 2)
    assert build_data(CheckReport, json.loads(dump_compact(report))) == report


# *** buffers


def align(data: bytes, right: Array, stored: list[tuple[int | None, int]], closed: list[int | None]) -> Array:
    """Aligns a buffer whose node has the ambient range -1."""
    buffer = WrittenBuffer(0, None, tuple(closed), tuple(stored), right.dtype, 0, "")
    return align_buffer(buffer, data, right.dtype, right.shape, [-1])


SIX = doubles(range(6), 3, 2)


def test_a_buffer_is_brought_into_the_shape_of_its_node() -> None:
    read_by_each_step = align(doubles([4.0, 5.0]).data, SIX, [(7, 2)], [-1, 7])
    assert list(decode(read_by_each_step)) == [4, 5, 4, 5, 4, 5]
    in_another_order = align(doubles([0, 2, 4, 1, 3, 5]).data, SIX, [(7, 2), (-1, 3)], [-1, 7])
    assert list(decode(in_another_order)) == list(range(6))
    # an unknown dimension is not a missing one
    assert list(decode(align(SIX.data, SIX, [(None, 6)], [-1, 7]))) == list(range(6))


@pytest.mark.parametrize(
    ("size", "stored", "message"),
    [
        (16, [(None, 2)], "its shape does not match the shape of its node"),
        (32, [(9, 4)], "its shape does not match the shape of its node"),
        (40, [(-1, 3), (7, 2)], "it holds 5 elements, its ranges have 6"),
    ],
)
def test_a_buffer_of_another_shape_is_reported(size: int, stored: list[tuple[int | None, int]], message: str) -> None:
    with pytest.raises(Unknown, match=f"^{message}$"):
        align(bytes(size), SIX, stored, [-1, 7])


# *** blame


def wrong_check() -> ScheduleCheck:
    right, got = doubles(range(6), 3, 2), doubles([4, 5] * 3, 3, 2)
    found = compare(got, right, 4)
    capture = lost_range(fixed=False)
    node = capture.schedules[0].bufferizes[0].node
    buffer = result.BufferCheck(node, 0, (3, 2), "double", ("rm1",), found, None)
    output = OutputCheck(number=0, shape=(3, 2), dtype="double", comparison=found)
    return ScheduleCheck(
        schedule=0, line="a.py:3", outputs=(output,), buffers=(buffer,), unchecked=(), failed=None, evaluations=5
    )


def findings_of(check: ScheduleCheck, *, fixed: bool = True) -> tuple[Finding, ...]:
    return make_findings(lost_range(fixed=fixed), CheckReport((check,)))


def test_the_finding_names_the_node_the_kernel_and_the_lost_range() -> None:
    capture = lost_range(fixed=False)
    (finding,) = findings_of(wrong_check(), fixed=False)
    assert finding.code == WRONG_VALUE
    assert finding.kernel == capture.schedules[0].kernels[0].name
    assert finding.node == capture.schedules[0].bufferizes[0].node
    for part in ("4 of 6 elements are wrong", "[0, 0]: 4.0, should be 0.0", "last one", "ambient range rm1"):
        assert part in finding.message
    # the kernel that raised is named
    node = capture.schedules[0].kernels[0].outputs[0]
    crash = Crash("error", "codegen", None, None, schedule=0)
    capture = replace(capture, error=SnippetError("RuntimeError", "no", "a.py:3", crash=crash))
    failed = replace(wrong_check(), outputs=(), buffers=(), failed="RuntimeError: no", crash=crash)
    (finding,) = make_findings(capture, CheckReport((replace(failed, failed_kernel=0, failed_node=node),)))
    assert finding.code == CRASHES
    assert (finding.kernel, finding.number, finding.node) == (capture.schedules[0].kernels[0].name, 0, node)
    assert finding.line == next(n.line for n in capture.schedules[0].nodes if n.id == node)


def test_a_failed_schedule_whose_error_is_caught_is_a_finding_if_stock_tinygrad_computes_it() -> None:
    failed = replace(wrong_check(), outputs=(), buffers=(), failed="RuntimeError: no", stock_runs=True)
    (finding,) = findings_of(failed, fixed=False)
    assert finding.code == FAILS
    assert "RuntimeError: no" in finding.message
    assert finding.message.endswith("without patches it runs")
    assert findings_of(replace(failed, stock_runs=False), fixed=False) == ()


@pytest.mark.parametrize(("stage", "codes"), [("schedule", [FAILS]), ("codegen", [FAILS]), ("run", [])])
def test_a_failed_scope_whose_error_is_caught_is_a_finding_unless_a_device_is_missing(
    stage: CrashStage, codes: list[str]
) -> None:
    crash = Crash("error", stage, None, None, schedule=0)
    expected = (result.ExpectedOutput(0, (3, 2), "double", (0.0,)),)
    failed = replace(wrong_check(), outputs=(), buffers=(), failed="RuntimeError: no", crash=crash, expected=expected)
    assert [finding.code for finding in findings_of(failed, fixed=False)] == codes


def test_a_wrong_read_is_blamed_and_not_the_wrong_buffer() -> None:
    # a read at the wrong time has a code of its own and names both kernels
    check = wrong_check()
    read = result.StaleRead(1, is_late=True, writer=0, writer_node=1)
    fault = result.KernelFault("scheduler", is_same=True, stale=(read,))
    wrong = replace(check.buffers[0], missing=(), fault=fault)
    (finding,) = findings_of(replace(check, buffers=(wrong,)))
    assert finding.code == STALE_READ
    kernel = lost_range().schedules[0].kernels[0]
    order = f"it reads {kernel.buffers[1].name} after {kernel.name} #0 has written it, and should before"
    assert order in finding.message
    early = replace(fault, stale=(replace(read, is_late=False, writer=None, writer_node=None),))
    (finding,) = findings_of(replace(check, buffers=(replace(wrong, fault=early),)))
    assert "before another launch writes it, and should after" in finding.message
    # a read at another step
    wrong = replace(check.buffers[0], missing=(), reads=(1,), misread=result.Misread(1, ("rm1",), 3, 2, (0,), (2,)))
    (finding,) = findings_of(replace(check, buffers=(wrong,)))
    assert finding.node == 1
    assert "read at other steps of its ambient range rm1: at step 0 it gets what belongs to 2;" in finding.message
    assert finding.message.endswith("so at 2 of 3 steps")


def test_an_overwritten_input_has_a_code_of_its_own_also_in_a_replay() -> None:
    check = wrong_check()
    changed = replace(check.outputs[0], of="input")
    stale = replace(check.outputs[0], number=1, stale=result.StaleValue(0, is_late=True))
    both = replace(check, outputs=(changed, stale), buffers=())
    overwritten, read = findings_of(both)
    assert (overwritten.code, read.code) == (OVERWRITTEN, STALE_READ)
    assert "it is the value from reading assigned buffer 0 after the write to it" in read.message
    assert "it should be read before the write" in read.message
    one = replace(check.outputs[0], overwritten=(OverwrittenInput(1),))
    more = replace(one, number=1, overwritten=(OverwrittenInput(0), OverwrittenInput(2), OverwrittenInput(None)))
    replay = replace(check, outputs=(one, more), buffers=(), replay=1)
    first, second = findings_of(replay)
    assert (first.code, second.code) == (OVERWRITTEN, OVERWRITTEN)
    assert "from reading input 1 of the function after the replay has overwritten it" in first.message
    inputs = "input 0 of the function and input 2 of the function and 1 buffer that is not an input"
    assert f"from reading {inputs} after the replay has overwritten them" in second.message


# *** which step was read


EXACT = make_tolerance("int", 0, 0.0)


@given(st.integers(2, 6), st.integers(1, 5), st.randoms(use_true_random=False))
def test_steps_read_are_found(count: int, size: int, chance: random.Random) -> None:
    """The value is a row for each step: its first number identifies a row, and each row reads some step."""
    rows = [[100 * k + i for i in range(size)] for k in range(count)]
    reads = [chance.randrange(count) for _ in range(count)]
    by_step = [[100000 * k + x for k in range(count) for x in rows[j]] for j in range(count)]
    right = [100000 * k + x for k in range(count) for x in rows[k]]
    got = [100000 * k + x for k in range(count) for x in rows[reads[k]]]
    expected = {k: j for k, j in enumerate(reads) if j != k}
    assert find_steps_read(got, right, by_step, EXACT) == expected


@pytest.mark.parametrize(
    ("got", "right", "steps"),
    [
        ([1, 11], [0, 11], {0: 1}),
        ([7, 11], [0, 11], {}),
        # a sum over the steps belongs to no single step
        ([4, 11], [3, 11], {}),
        # the elements of one step are read at one step
        ([1, 12], [0, 10], {}),
        ([2, 12], [0, 10], {0: 2}),
    ],
)
def test_a_value_of_no_step_is_not_a_misreading(got: list[int], right: list[int], steps: dict[int, int]) -> None:
    assert find_steps_read(got, right, [[0, 10], [1, 11], [2, 12]], EXACT) == steps
