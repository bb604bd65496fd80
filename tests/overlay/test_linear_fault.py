"""Who made a wrong buffer whose kernel is right as the scheduler made it: its linear program says which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from tinygrad import Tensor, Variable
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.check.compare import compare
from vmapdbg.check.result import Comparison, KernelFault
from vmapdbg.child.compare import kernel_rerun
from vmapdbg.child.evidence.evidence import KernelRun, WrittenBuffer
from vmapdbg.child.listen.rendering import compile_kernel
from vmapdbg.child.program.accesses import carries_values
from vmapdbg.child.program.linear_reader import read_linear
from vmapdbg.child.program.programs import keep_program
from vmapdbg.values.numbers import Array, encode
from vmapdbg.values.tolerance import make_tolerance

READ = np.arange(12.0)
DOUBLED, TRIPLED = 2 * READ, 3 * READ


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
    """Whether all of the program runs, or only what writes some of the wrong elements."""
    monkeypatch.setattr(kernel_rerun, "MOST_STEPS", 1000)
    read = np.arange(size) % 7 + 1
    assert tell(scale(2.0, size), 3 * read, 2 * read, read=read) == KernelFault("compiler")
    assert tell(scale(3.0, size), 3 * read, 2 * read, read=read) == KernelFault("codegen", is_same=True)
    assert tell(scale(3.0, size), 5 * read, 2 * read, read=read) == KernelFault("codegen", is_same=False)


def test_a_fault_in_one_element() -> None:
    got = DOUBLED.copy()
    got[7] = -1.0
    assert tell(scale(2.0), got).made_by == "compiler"
    # the last steps are missing: what no step has written is 0
    got = np.where(READ < 8, DOUBLED, 0.0)
    assert tell(replace_loop_ends(scale(2.0), 2), got) == KernelFault("codegen", is_same=True)


def test_a_program_that_writes_outside_of_its_buffer() -> None:
    fault = tell(replace_loop_ends(lower(Tensor.full((12,), 3.0).contiguous()), 4), TRIPLED)
    assert (fault.made_by, fault.reason) == ("codegen", "it writes outside of its buffer")


def test_a_program_that_reads_outside_of_its_buffers() -> None:
    fault = tell(scale(2.0), TRIPLED, read=READ[:8])
    assert fault == KernelFault("lowering", "its linear program reads outside of its buffers")


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
    monkeypatch.setattr(kernel_rerun, "MOST_STEPS", 1)
    fault = tell(scale(2.0), TRIPLED)
    assert fault == KernelFault("lowering", "its linear program is too long to be run: over 1 steps")


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


def test_a_sum_runs_whole_and_its_elements_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that adds carries its sum from step to step; the loop around it does not."""
    uops = lower(Tensor.empty(4, 3).sum(1))
    program = read_linear(uops)
    carried = {loop.trips: carries_values(program, loop) for loop in program.loops}
    assert carried.get(4, False) is False
    right = READ.reshape(4, 3).sum(1)
    for most in (kernel_rerun.MOST_STEPS, 60):
        monkeypatch.setattr(kernel_rerun, "MOST_STEPS", most)
        assert tell(uops, right + 1, right) == KernelFault("compiler")
        assert tell(uops, right, right + 1) == KernelFault("codegen", is_same=True)


def test_a_buffer_that_is_written_in_place_runs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an element is after a step may depend on other steps."""
    buffer = Tensor.zeros(12).contiguous().realize()
    buffer.assign(buffer + 1)
    uops = lower(buffer)
    monkeypatch.setattr(kernel_rerun, "MOST_STEPS", 10)
    run = KernelRun(None, ("read",), None, "linear")
    contents = {"linear": keep_program(uops, {}), "read": encode(READ, "float").data}
    fault = judge(run, contents, encode(TRIPLED, "float"), encode(READ + 1, "float"))
    assert fault.reason == "its linear program is too long to be run: over 10 steps"
    monkeypatch.undo()
    assert judge(run, contents, encode(TRIPLED, "float"), encode(READ + 1, "float")) == KernelFault("compiler")
