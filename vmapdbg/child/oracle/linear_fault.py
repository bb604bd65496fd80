"""Tells code generation from what comes after it: the linear program of a kernel is run by numpy, on what the kernel
really read. Runs in the oracle.
"""

from __future__ import annotations

import pickle

import numpy as np

from vmapdbg.check.result import KernelFault
from vmapdbg.child.oracle.wrong_buffer import Read, WrongBuffer, arrange, read_arguments
from vmapdbg.reference.linear import LinearProgram
from vmapdbg.reference.linear_memory import LeavesMemory
from vmapdbg.reference.run_linear import run_linear
from vmapdbg.reference.value import Unknown
from vmapdbg.values.close import find_close
from vmapdbg.values.numbers import decode


def find_linear_fault(read: Read, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer whose kernel is right as the scheduler made it."""
    run = wrong.buffer.run
    if run.linear is None:
        return KernelFault("lowering", run.linear_refused)
    program: LinearProgram = pickle.loads(read(run.linear))
    try:
        dtypes = {memory.argument: memory.dtype for memory in program.memories if memory.argument is not None}
        written = run_linear(program, read_arguments(dtypes, run.arguments, wrong.buffer, read))
    except LeavesMemory as error:
        return KernelFault("codegen", str(error))
    except Unknown as error:
        return KernelFault("lowering", str(error))
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError) as error:
        # numpy does not take a program that is not what it should be
        return KernelFault("lowering", f"the reference failed: {type(error).__name__}: {error}")
    if 0 not in written:
        return KernelFault("codegen", "it does not write its first buffer")
    found = arrange(written[0], wrong.buffer, wrong.right, wrong.ambient)
    if isinstance(found, str):
        return KernelFault("lowering", found)
    values, undefined = found
    got, right, computed = decode(wrong.got), decode(wrong.right), decode(values)
    is_wrong = ~np.asarray(find_close(got, right, wrong.tolerance))
    if (is_wrong & undefined).any():
        return KernelFault("lowering", "C leaves undefined what it computes")
    if wrong.judge(values).status != "wrong":
        return KernelFault("compiler")
    is_same = np.asarray(find_close(got, computed, wrong.tolerance)) | undefined
    return KernelFault("codegen", is_same=bool(is_same.all()))
