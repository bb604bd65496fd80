"""What an access of a linear program reaches, and who made a wrong buffer: the program decides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad import Tensor, Variable
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

from vmapdbg.check.compare import compare
from vmapdbg.check.result import Comparison, KernelFault
from vmapdbg.child.compare import kernel_rerun
from vmapdbg.child.evidence.evidence import KernelRun, WrittenBuffer
from vmapdbg.child.evidence.filling import make_filling
from vmapdbg.child.listen.rendering import compile_kernel
from vmapdbg.child.program import interpret
from vmapdbg.child.program.linear import ProgramLoop, Value
from vmapdbg.child.program.linear_reader import read_values
from vmapdbg.child.program.programs import keep_program
from vmapdbg.child.program.reach import MOST_STEPS, Reach, bound_address, count_written, find_outside, find_reach
from vmapdbg.reference.graph import Unknown
from vmapdbg.values.numbers import Array, encode
from vmapdbg.values.tolerance import make_tolerance


def loop(number: int, size: int) -> UOp:
    return UOp(Ops.RANGE, dtypes.int, (const(size),), (number, AxisType.LOOP))


def const(value: int) -> UOp:
    return UOp.const(dtypes.int, value)


def reach_of(address: UOp, gate: UOp | None, sizes: dict[UOp, int], width: int) -> Reach:
    (start, *values), _ = read_values(address, *sizes, *([] if gate is None else [gate]))
    condition = None if gate is None else values.pop()
    loops = [value for value in values if isinstance(value, ProgramLoop)]
    assert [loop.trips for loop in loops] == list(sizes.values())
    return find_reach(start, condition, loops, width)


def bounds_of(address: UOp, gate: UOp | None) -> tuple[int, int]:
    values: list[Value | None] = [*read_values(address, *([] if gate is None else [gate]))[0], None]
    start, condition = values[:2]
    assert start is not None
    return bound_address(start, condition)


def elements(reach: Reach) -> set[int]:
    bases = {reach.base + sum(map(int, step)) for step in itertools.product(*reach.sets)}
    return {base + i for base in bases for i in range(reach.width)}


# a term of an address: (which loop, what is done to it, the constant of that, the factor)
TERM = st.tuples(
    st.integers(0, 2), st.sampled_from(["", "//", "%", ">>", "&", "?", "+other"]), st.integers(1, 5), st.integers(-7, 7)
)


def make_term(loops: list[UOp], which: int, what: str, number: int, factor: int) -> UOp:
    x = loops[which]
    if what == "//":
        x = x.alu(Ops.IDIV, const(number))
    elif what == "%":
        x = x.alu(Ops.MOD, const(number))
    elif what == ">>":
        x = x.alu(Ops.SHR, const(number % 3))
    elif what == "&":
        x = x.alu(Ops.AND, const(number))
    elif what == "?":
        x = x.alu(Ops.CMPLT, const(number)).alu(Ops.WHERE, const(3), x)
    elif what == "+other":
        x = (x + loops[(which + 1) % 3]).alu(Ops.MOD, const(number))
    return x.alu(Ops.MUL, const(factor))


def evaluate(u: UOp, values: dict[UOp, int]) -> int:
    """The values of an expression, computed without the code under test."""
    if u in values:
        return values[u]
    if u.op is Ops.CONST:
        return int(u.arg)
    s = [evaluate(x, values) for x in u.src]
    match u.op:
        case Ops.ADD:
            return s[0] + s[1]
        case Ops.MUL:
            return s[0] * s[1]
        case Ops.IDIV:
            return int(s[0] / s[1])
        case Ops.MOD:
            return s[0] - s[1] * int(s[0] / s[1])
        case Ops.SHR:
            return s[0] >> s[1]
        case Ops.AND:
            return s[0] & s[1]
        case Ops.CMPLT:
            return int(s[0] < s[1])
        case Ops.WHERE:
            return s[1] if s[0] else s[2]
    raise AssertionError(u.op)


@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(TERM, max_size=4),
    st.none() | st.tuples(st.integers(0, 2), st.integers(0, 5)),
    st.integers(1, 4),
)
def test_reach_is_exact(sizes: list[int], terms: list, gate: tuple[int, int] | None, width: int) -> None:
    loops = [loop(i, size) for i, size in enumerate(sizes)]
    address = const(2)
    for term in terms:
        address = address + make_term(loops, *term)
    condition = None if gate is None else loops[gate[0]].alu(Ops.CMPLT, const(gate[1]))
    reach = reach_of(address, condition, dict(zip(loops, sizes, strict=True)), width)
    steps = [dict(zip(loops, values, strict=True)) for values in itertools.product(*map(range, sizes))]
    passed = [step for step in steps if condition is None or evaluate(condition, step)]
    starts = [evaluate(address, step) for step in passed]
    used = {u for root in (address, condition) if root is not None for u in root.toposort()}
    repeats = math.prod(size for loop, size in zip(loops, sizes, strict=True) if loop not in used)
    assert reach.steps * repeats == len(passed)
    if passed:
        assert (reach.lowest, reach.highest) == (min(starts), max(starts) + width - 1)
        assert elements(reach) == {start + i for start in starts for i in range(width)}
        size = max(1, reach.highest + 2)
        _, written, missing = count_written([reach], size)
        assert written == len(elements(reach))
        assert missing == next((i for i in range(size) if i not in elements(reach)), None)


def test_unrolled_stores_are_one_set() -> None:
    """Four stores, one element apart, in a million steps: nothing is gone through, and all is known."""
    rows = loop(0, 1 << 20)
    reaches = [reach_of(rows.alu(Ops.SHL, const(2)) + const(i), None, {rows: 1 << 20}, 1) for i in range(4)]
    assert count_written(reaches, 1 << 22) == (1 << 22, 1 << 22, None)


def test_too_large_to_go_through_is_undecided() -> None:
    big = loop(0, MOST_STEPS + 1)
    with pytest.raises(Unknown):
        reach_of(big.alu(Ops.MOD, const(7)), None, {big: MOST_STEPS + 1}, 1)


def test_loaded_values_are_undecided_and_bounded_by_the_gate() -> None:
    buffer = UOp(Ops.DEFINE_GLOBAL, dtypes.int.ptr(4), (), 0)
    loaded = buffer.index(const(0)).load()
    with pytest.raises(Unknown):
        reach_of(loaded, None, {}, 1)
    gate = const(-1).alu(Ops.CMPLT, loaded) & loaded.alu(Ops.CMPLT, const(6))
    row = loop(0, 3)
    assert bounds_of(loaded.alu(Ops.SHL, const(2)) + row, gate) == (0, 22)
    assert bounds_of(loaded + row, None)[1] > 1 << 30


def test_range_outside_of_its_axis() -> None:
    r = UOp.range(5, 0)
    assert find_outside(r, 5) is None
    assert find_outside(r + 1, 5) == (1, 5)
    assert find_outside((r < 4).where(r + 1, UOp.invalid()), 5) is None
    assert find_outside((r < 5).where(r - 1, UOp.invalid()), 5) == (-1, 3)


# *** who made a wrong buffer whose scheduled kernel is right


READ = np.arange(12.0)
DOUBLED, TRIPLED = 2 * READ, 3 * READ
REORDERED = "it reads the buffer that it writes at other places: its value depends on the order"


def lower(tensor: Tensor) -> list[UOp]:
    items, _ = tensor.schedule_with_vars()
    (scheduled,) = [item for item in items if item.ast.op is Ops.SINK]
    return list(compile_kernel(scheduled.ast, "c").uops)


def scale(factor: float, size: int = 12) -> list[UOp]:
    """Each element times a factor."""
    return lower(Tensor.empty(size) * factor)


def replace_loop_ends(uops: Sequence[UOp], steps: int) -> list[UOp]:
    """Makes the loop of a program run another number of times."""
    loop = next(u for u in uops if u.op is Ops.RANGE)
    end = UOp.const(loop.src[0].dtype, steps)
    made: dict[UOp, UOp] = {loop.src[0]: end}
    for u in uops:
        made.setdefault(u, u.replace(src=tuple(made.get(source, source) for source in u.src)))
    return list(made.values())


def tell(
    uops: Sequence[UOp],
    got: Sequence[float] | np.ndarray,
    right: Sequence[float] | np.ndarray = DOUBLED,
    dtype: str = "float",
    read: np.ndarray = READ,
    variables: Mapping[str, int] = {},
) -> KernelFault:
    run = KernelRun(None, (None, "read"), None, "linear")
    contents = {"linear": keep_program(uops, variables), "read": encode(read, dtype).data}
    return judge(run, contents, encode(np.asarray(got), dtype), encode(np.asarray(right), dtype))


def judge(run: KernelRun, contents: dict[str, bytes], got: Array, right: Array) -> KernelFault:
    def compare_with_right(found: Array) -> Comparison:
        return compare(found, right, 4)

    size = right.shape[0]
    buffer = WrittenBuffer(1, 0, (0,), ((0, size),), right.dtype, size, "got", run=run)
    tolerance = make_tolerance(right.dtype, 4, 40.0)
    read = contents.__getitem__
    wrong = kernel_rerun.WrongBuffer(buffer, got, right, (), tolerance, compare_with_right, read)
    return kernel_rerun.find_linear_fault(wrong)


@pytest.mark.parametrize("size", [12, 480])
def test_scheduler_or_code_generation_is_at_fault(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all wrong elements are computed, or some of them."""
    monkeypatch.setattr(kernel_rerun, "MOST_COMPUTED", 16)
    read = np.arange(size) % 7 + 1
    assert tell(scale(2.0, size), 3 * read, 2 * read, read=read) == KernelFault("compiler")
    assert tell(scale(3.0, size), 3 * read, 2 * read, read=read) == KernelFault("codegen", is_same=True)
    assert tell(scale(3.0, size), 5 * read, 2 * read, read=read) == KernelFault("codegen", is_same=False)


def test_a_fault_in_one_element() -> None:
    got = DOUBLED.copy()
    got[7] = -1.0
    assert tell(scale(2.0), got).made_by == "compiler"
    # the last steps are missing: what no step has written is as new memory is filled
    got = np.where(READ < 8, DOUBLED, np.frombuffer(make_filling(12 * 4), np.float32))
    assert tell(replace_loop_ends(scale(2.0), 2), got) == KernelFault("codegen", is_same=True)


def test_a_program_that_writes_outside_of_its_buffer() -> None:
    fault = tell(replace_loop_ends(lower(Tensor.full((12,), 3.0).contiguous()), 4), TRIPLED)
    assert (fault.made_by, fault.reason) == ("codegen", "it writes outside of its buffer")


def test_a_program_that_reads_outside_of_its_buffers() -> None:
    fault = tell(scale(2.0), TRIPLED, read=READ[:8])
    assert fault == KernelFault("lowering", "it reads outside of its buffers")


def test_if_it_is_undecided_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    got, right = encode(TRIPLED, "float"), encode(DOUBLED, "float")
    refused = KernelRun(None, (None,), None, None, "its linear program was not kept")
    assert judge(refused, {}, got, right) == KernelFault("lowering", "its linear program was not kept")
    unread = KernelRun(None, (None, None), None, "linear")
    fault = judge(unread, {"linear": keep_program(scale(2.0), {})}, got, right)
    assert fault == KernelFault("lowering", "what it reads was not kept")
    foreign = KernelRun(None, (None, "read"), None, "linear")
    fault = judge(foreign, {"linear": keep_program([UOp(Ops.CUSTOM, dtypes.void)], {})}, got, right)
    assert fault == KernelFault("codegen", "it does not write its first buffer")
    monkeypatch.setattr(interpret, "MOST_OPS", 1)
    fault = tell(scale(2.0), TRIPLED)
    assert fault == KernelFault("lowering", "it takes more than 1 steps")


def test_a_variable_has_its_value() -> None:
    uops = lower(Tensor.empty(12) * Tensor(Variable("by", 1, 9).bind(3)))
    assert tell(uops, TRIPLED, variables={"by": 3}) == KernelFault("codegen", is_same=True)
    assert tell(uops, TRIPLED, variables={"by": 2}) == KernelFault("compiler")
    assert tell(uops, TRIPLED).reason == "its variable by has no value"


def test_integers_are_divided_as_in_c() -> None:
    uops = lower(Tensor.empty(12, dtype=dtypes.int).idiv(3))
    read = np.arange(-6, 6)
    right = np.trunc(read / 3).astype(np.int64)
    assert tell(uops, right + 1, right, "int", read).made_by == "compiler"


def test_the_loop_of_a_sum_runs_in_order() -> None:
    """The loop that adds takes its sum from step to step."""
    uops = lower(Tensor.empty(4, 3).sum(1))
    right = READ.reshape(4, 3).sum(1)
    assert tell(uops, right + 1, right) == KernelFault("compiler")
    assert tell(uops, right, right + 1) == KernelFault("codegen", is_same=True)


def write_in_place(uops: Sequence[UOp]) -> list[UOp]:
    """Makes a program read the buffer that it writes."""
    made: dict[UOp, UOp] = {}
    for u in uops:
        u_made = u.replace(src=tuple(made[source] for source in u.src))
        made[u] = u_made.replace(arg=0) if u.op is Ops.DEFINE_GLOBAL else u_made
    return list(dict.fromkeys(made.values()))


def test_a_buffer_that_is_written_in_place() -> None:
    """Each element is read where it is written; else it may depend on what other steps have written."""
    run = KernelRun(None, ("read",), None, "linear")
    for tensor, expected in (
        (Tensor.empty(12) + 1, KernelFault("compiler")),
        (Tensor.empty(12).flip(0) + 1, KernelFault("lowering", REORDERED)),
    ):
        contents = {"linear": keep_program(write_in_place(lower(tensor)), {}), "read": encode(READ, "float").data}
        assert judge(run, contents, encode(TRIPLED, "float"), encode(READ + 1, "float")) == expected
