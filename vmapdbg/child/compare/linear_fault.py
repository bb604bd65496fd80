"""Tells code generation from what comes after it: the linear program of a kernel is run by numpy, on what the kernel
really read. Runs in the process that compares.

Of a program that takes long only the steps are run that write some of the wrong elements.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.result import KernelFault
from vmapdbg.child.compare.kernel_rerun import (
    REFUSED_BY_NUMPY,
    WrongBuffer,
    align_buffer,
    arrange,
    describe_refusal,
    read_arguments,
)
from vmapdbg.child.compare.reference_values import Read
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.linear import LinearProgram, nest
from vmapdbg.reference.linear_memory import LeavesMemory
from vmapdbg.reference.linear_plan import count_numbers
from vmapdbg.reference.linear_wanted import find_steps
from vmapdbg.reference.run_kernel import Written
from vmapdbg.reference.run_linear import run_linear
from vmapdbg.values.close import find_close
from vmapdbg.values.numbers import Array, decode, encode

MOST_NUMBERS = 1 << 26
"""The most numbers that a program computes of which all steps are run. About a second."""
_MOST_SHOWN = 16
"""How many of the wrong elements are computed where not all are."""

Flags = NDArray[np.bool_]


def find_linear_fault(read: Read, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer whose kernel is right as the scheduler made it."""
    run = wrong.buffer.run
    if run.linear is None:
        return KernelFault("lowering", run.linear_refused)
    program: LinearProgram = pickle.loads(read(run.linear))
    dtypes = {memory.argument: memory.dtype for memory in program.memories if memory.argument is not None}
    try:
        return _judge(program, wrong, read_arguments(dtypes, run.arguments, wrong.buffer, read))
    except LeavesMemory as error:
        return KernelFault("codegen", str(error))
    except Unknown as error:
        return KernelFault("lowering", str(error))
    except REFUSED_BY_NUMPY as error:
        return KernelFault("lowering", describe_refusal(error))


def _judge(program: LinearProgram, wrong: WrongBuffer, contents: Mapping[int, Array]) -> KernelFault:
    got, right = decode(wrong.got), decode(wrong.right)
    is_wrong = ~np.asarray(find_close(got, right, wrong.tolerance))
    written, is_computed = _run(program, wrong, contents, is_wrong)
    if 0 not in written:
        return KernelFault("codegen", "it does not write its first buffer")
    found = arrange(written[0], wrong.buffer, wrong.right, wrong.ambient)
    if isinstance(found, str):
        return KernelFault("lowering", found)
    values, undefined = found
    if (is_wrong & is_computed & undefined).any():
        return KernelFault("lowering", "C leaves undefined what its linear program computes")
    # what was not computed is not compared
    computed = np.where(is_computed & ~undefined, decode(values), right)
    data = encode(computed, wrong.right.dtype).data
    if wrong.compare(Array(data, wrong.right.dtype, wrong.right.shape)).status != "wrong":
        return KernelFault("compiler")
    is_same = np.asarray(find_close(got, computed, wrong.tolerance)) | undefined | ~is_computed
    return KernelFault("codegen", is_same=bool(is_same.all()))


def _run(
    program: LinearProgram, wrong: WrongBuffer, contents: Mapping[int, Array], is_wrong: Flags
) -> tuple[dict[int, Written], Flags]:
    """Returns what the program writes, and which of the elements of what is right it was run for. Raises Unknown."""
    count = count_numbers(program, nest(program.instructions))
    everywhere = np.ones(is_wrong.shape, np.bool_)
    places = None
    if count is None or count > MOST_NUMBERS:
        places = _find_places(wrong)
    if places is None:
        return run_linear(program, contents), everywhere
    chosen = _choose(is_wrong)
    kept = find_steps(program, 0, wrong.buffer.size, places[chosen])
    if kept is None:
        return run_linear(program, contents), everywhere
    is_computed = ~everywhere
    is_computed[chosen] = True
    return run_linear(program, contents, kept), is_computed


def _find_places(wrong: WrongBuffer) -> NDArray[np.int64] | None:
    """Returns which element of the buffer each of those of what is right is, None where that is not known."""
    numbers = np.arange(wrong.buffer.size, dtype=np.int64)
    shape = wrong.right.shape
    like = Array(bytes(math.prod(shape) * numbers.itemsize), "long", shape)
    aligned = align_buffer(wrong.buffer, numbers.tobytes(), like, wrong.ambient)
    return None if isinstance(aligned, str) else decode(aligned)


def _choose(is_wrong: Flags) -> NDArray[np.int64]:
    """Returns the first wrong elements, and some of the others."""
    found = np.flatnonzero(is_wrong)
    spread = np.linspace(0, len(found) - 1, _MOST_SHOWN // 2).astype(np.int64)
    return np.unique(np.concatenate([found[: _MOST_SHOWN // 2], found[spread]]))
