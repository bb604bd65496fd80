"""Tells who made the first wrong buffer: the kernel as the scheduler made it is run by numpy, on what the kernel really
read. Runs in the oracle.

Where that gives the same wrong values, or other wrong ones, the scheduler made the fault. Where it gives the right
ones, what came after it did: code generation, or the compiler. Where the scheduler did, the kernel is run on what its
arguments held at other times of the schedule, too: right values tell that it read at the wrong time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.align import align
from vmapdbg.check.result import Comparison, KernelFault, StaleRead
from vmapdbg.child.evidence.graphs import Evidence, KernelRun, WrittenBuffer
from vmapdbg.reference.kernel import Kernel
from vmapdbg.reference.run_kernel import Written, run_kernel
from vmapdbg.reference.value import Unknown
from vmapdbg.values.close import find_close
from vmapdbg.values.numbers import ITEMSIZE, Array, decode
from vmapdbg.values.tolerance import Tolerance

Read = Callable[[str], bytes]
MOST_TRIED = 64
"""So many times a kernel is computed with what its arguments held at other times."""


@dataclass(frozen=True)
class WrongBuffer:
    """The first wrong buffer: what it holds, and what it should, with its `ambient` ranges first; they differ beyond
    the `tolerance`. `judge` compares other contents of it with what is right."""

    buffer: WrittenBuffer
    got: Array
    right: Array
    ambient: tuple[int, ...]
    tolerance: Tolerance
    judge: Callable[[Array], Comparison]


def find_kernel_fault(evidence: Evidence, read: Read, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer."""
    run = wrong.buffer.run
    if run.kernel is None:
        return KernelFault("not-told", run.refused)
    kernel = evidence.kernels[run.kernel]
    found = compute(kernel, run.arguments, wrong, read)
    if isinstance(found, str):
        return KernelFault("not-told", found)
    values, undefined = found
    is_same = np.asarray(find_close(decode(wrong.got), decode(values), wrong.tolerance)) | undefined
    if is_same.all():
        return KernelFault("scheduler", is_same=True, stale=find_stale(evidence, read, wrong))
    if not undefined.any() and wrong.judge(values).status != "wrong":
        return KernelFault("lowering")
    return KernelFault("scheduler", is_same=False)


def find_stale(evidence: Evidence, read: Read, wrong: WrongBuffer) -> tuple[StaleRead, ...]:
    """Returns which arguments a kernel read at a wrong time: with what these held at another time it computes what is
    right. Empty where nothing of that kind makes it right."""
    run = wrong.buffer.run
    assert run.kernel is not None
    kernel = evidence.kernels[run.kernel]
    for chosen in itertools.islice(choose_versions(run), MOST_TRIED):
        names = tuple(run.versions[i][chosen[i]].name if i in chosen else name for i, name in enumerate(run.arguments))
        found = compute(kernel, names, wrong, read)
        if isinstance(found, str) or found[1].any():
            continue
        if wrong.judge(found[0]).status != "wrong":
            return tuple(make_stale_read(evidence, run, argument, version) for argument, version in chosen.items())
    return ()


def choose_versions(run: KernelRun) -> Iterator[dict[int, int]]:
    """Yields what could be read instead, argument -> version: of one argument first, the nearest versions first, then
    of several."""
    others: dict[int, list[int]] = {}
    for argument, held in enumerate(run.held):
        if held is None:
            continue
        versions = run.versions[argument]
        different = [i for i, version in enumerate(versions) if version.name != versions[held].name]
        if different:
            others[argument] = sorted(different, key=lambda i, held=held: abs(i - held))
    for count in range(1, len(others) + 1):
        for arguments in itertools.combinations(others, count):
            for versions in itertools.product(*(others[argument] for argument in arguments)):
                yield dict(zip(arguments, versions, strict=True))


def make_stale_read(evidence: Evidence, run: KernelRun, argument: int, version: int) -> StaleRead:
    held = run.held[argument]
    assert held is not None
    is_late = version < held
    # the first write that came too early, or the one that came too late
    launch = run.versions[argument][version + 1 if is_late else version].launch
    writer = evidence.find_written(launch)
    return StaleRead(argument, is_late, writer and writer.kernel, writer and writer.node)


def compute(
    kernel: Kernel, names: tuple[str | None, ...], wrong: WrongBuffer, read: Read
) -> tuple[Array, NDArray[np.bool_]] | str:
    """Returns what a kernel as scheduled writes, from contents of these names, in the shape of what is right, and which
    elements nobody defines; or why that cannot be had."""
    try:
        written = run_kernel(kernel, read_arguments(kernel, names, wrong.buffer, read))
    except Unknown as error:
        return str(error)
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        # numpy does not take a kernel that is not what it should be
        return f"the reference failed: {type(error).__name__}: {error}"
    scheduled = written.get(0)
    if scheduled is None:
        return "it does not write its first buffer"
    return arrange(scheduled, wrong.buffer, wrong.right, wrong.ambient)


def read_arguments(
    kernel: Kernel, names: tuple[str | None, ...], buffer: WrittenBuffer, read: Read
) -> dict[int, Array]:
    """Returns what the arguments of a kernel held before it ran. Raises Unknown."""
    found: dict[int, Array] = {}
    for number, dtype in kernel.dtypes.items():
        name = names[number]
        if name is None and number != 0:
            raise Unknown("what it reads was not kept")
        # what nobody wrote has any contents
        data = bytes(buffer.size * ITEMSIZE[dtype])
        if name is not None:
            data = read(name)
        found[number] = Array(data, dtype, (len(data) // ITEMSIZE[dtype],))
    return found


def arrange(
    written: Written, buffer: WrittenBuffer, right: Array, ambient: tuple[int, ...]
) -> tuple[Array, NDArray[np.bool_]] | str:
    """Returns what a kernel writes in the shape of what is right, and which elements nobody defines."""
    masks = written.undefined
    if masks is None:
        masks = np.zeros(written.array.shape, np.bool_)
    flags = Array(bytes(math.prod(right.shape)), "bool", right.shape)
    whole = align_buffer(buffer, written.array.data, right, ambient)
    mask = align_buffer(buffer, masks.tobytes(), flags, ambient)
    if isinstance(whole, str):
        return whole
    if isinstance(mask, str):
        return mask
    return whole, np.frombuffer(mask.data, np.bool_)


def align_buffer(buffer: WrittenBuffer, data: bytes, right: Array, ambient: tuple[int, ...]) -> Array | str:
    """Returns contents of a buffer in the shape of what is right, or a sentence that says why that cannot be."""
    if buffer.is_memory and len(data) == len(right.data):
        return Array(data, right.dtype, right.shape)
    return align(data, right, buffer.stored, buffer.closed, ambient)
