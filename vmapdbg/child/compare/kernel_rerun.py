"""Runs the kernel of the first wrong buffer again by numpy, on what it really read, to find the stage that made the
fault. Runs in the process that compares.

If the kernel as scheduled gives the wrong values, too, the scheduler made the fault, or the kernel read memory at a
wrong time: with other contents of its arguments it is right. If the kernel as scheduled is right, its linear program
runs; if that takes long, its graph is computed for some of the wrong elements.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.result import Comparison, KernelFault, StaleRead, UnwrittenElements
from vmapdbg.child.compare.reference_values import ReadContents
from vmapdbg.child.evidence.evidence import Evidence, KernelRun, WrittenBuffer
from vmapdbg.child.evidence.filling import clear_unwritten, find_unwritten, make_filling
from vmapdbg.child.program.interpret import Interpreter
from vmapdbg.child.program.linear_reader import read_linear
from vmapdbg.child.program.programs import CannotRun, LeavesMemory, count_steps, load_program, run_program
from vmapdbg.reference.arithmetic import Promoted, Rounding, load
from vmapdbg.reference.graph import ScheduledKernel, Unknown
from vmapdbg.reference.kernels import run_kernel
from vmapdbg.values.numbers import Array, Numbers, decode, encode, find_close, view_elements
from vmapdbg.values.tolerance import ITEMSIZE, Tolerance

MOST_STEPS = 400_000
"""The most ops of a linear program that run: about two seconds."""
_MOST_SHOWN = 16
"""How many of the wrong elements are computed if not all are."""
_MOST_TRIED = 64
"""How many times a kernel runs on what its arguments held at other times."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class WrongBuffer:
    """The first wrong buffer: what it holds (`got`) and should hold (`right`), `ambient` ranges first. They differ by
    more than `tolerance`. `compare` compares other contents with the right ones; `read` returns contents by name."""

    buffer: WrittenBuffer
    got: Array
    right: Array
    ambient: tuple[int, ...]
    tolerance: Tolerance
    compare: Callable[[Array], Comparison]
    read: ReadContents

    def align(self, data: bytes, dtype: str) -> Array:
        """Returns contents of the buffer in the shape of the right value. Raises Unknown."""
        return align_buffer(self.buffer, data, dtype, self.right.shape, self.ambient)

    def mark_elements(self, most: int | None = None) -> Flags:
        """Returns which elements of the buffer are wrong, or some of them. Raises Unknown."""
        chosen = np.flatnonzero(~np.asarray(find_close(decode(self.got), decode(self.right), self.tolerance)))
        if most is not None:
            chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, most).astype(np.int64))]
        marked = np.zeros(self.buffer.size, np.bool_)
        marked[decode(self.align(np.arange(self.buffer.size, dtype=np.int64).tobytes(), "long"))[chosen]] = True
        return marked


def find_fault(evidence: Evidence, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer."""
    fault = _find_maker(evidence, wrong)
    with contextlib.suppress(Unknown):
        return replace(fault, unwritten=_find_unwritten(evidence, wrong))
    return fault


def _find_maker(evidence: Evidence, wrong: WrongBuffer) -> KernelFault:
    run = wrong.buffer.run
    reason = run.refused
    if run.kernel is not None:
        try:
            fault = _find_scheduled_fault(evidence, wrong, evidence.kernels[run.kernel])
            return fault or _explain_compiler(evidence.kernels[run.kernel], wrong, find_linear_fault(wrong))
        except Unknown as error:
            reason = str(error)
    # if the linear program is right, the scheduled kernel was right, too
    if find_linear_fault(wrong).made_by == "compiler":
        return KernelFault("compiler", reason)
    return KernelFault("not-told", reason)


# *** contents of a buffer


@contextlib.contextmanager
def _numpy_refusals() -> Iterator[None]:
    """Raises Unknown if numpy refuses a malformed kernel or program."""
    try:
        yield
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise Unknown(f"the reference failed: {type(error).__name__}: {error}") from error


def read_arguments(dtypes: Mapping[int, str], names: Sequence[str | None], wrong: WrongBuffer) -> dict[int, Array]:
    """Returns what the arguments of a kernel held before it ran; `names` are their contents. Raises Unknown."""
    found: dict[int, Array] = {}
    for number, dtype in dtypes.items():
        name = names[number]
        if name is None and number != 0:
            raise Unknown("what it reads was not kept")
        data = make_filling(wrong.buffer.size * ITEMSIZE[dtype])
        if name is not None:
            data = wrong.read(name)
        found[number] = Array(data, dtype, (len(data) // ITEMSIZE[dtype],))
    return found


def align_buffer(
    buffer: WrittenBuffer, data: bytes, dtype: str, shape: tuple[int, ...], ambient: Sequence[int]
) -> Array:
    """Returns contents of a buffer in the shape of the right value: the ambient ranges, then the node's axes. tinygrad
    drops a dimension that the value does not depend on: then all its steps read the same elements, so a lost range
    becomes visible. Raises Unknown with a sentence if the shapes do not match."""
    itemsize = ITEMSIZE[dtype]
    is_as_large = len(data) == math.prod(shape) * itemsize
    if buffer.is_memory and is_as_large:
        return Array(data, dtype, shape)
    count = math.prod(size for _, size in buffer.stored)
    if len(data) != count * itemsize:
        raise Unknown(f"it holds {len(data) // itemsize} elements, its ranges have {count}")
    rank = len(shape) - len(ambient)
    keys = [*ambient, *buffer.closed[len(buffer.closed) - rank :]]
    wide = {r: size for r, size in buffer.stored if size != 1}
    fits = all(wide.get(key, size) == size for key, size in zip(keys, shape, strict=True))
    if None in wide or not fits or not set(wide) <= set(keys):
        if is_as_large:
            return Array(data, dtype, shape)
        raise Unknown("its shape does not match the shape of its node")
    held = view_elements(data, itemsize).reshape(tuple(wide.values()))
    ordered = held.transpose([list(wide).index(key) for key in keys if key in wide])
    spread = ordered[tuple(slice(None) if key in wide else None for key in keys)]
    return Array(np.broadcast_to(spread, shape).tobytes(), dtype, shape)


# *** the kernel as scheduled


def _explain_compiler(kernel: ScheduledKernel, wrong: WrongBuffer, fault: KernelFault) -> KernelFault:
    """Adds to a fault of the compiled code whether C's integer promotion makes it."""
    if fault.made_by in {"compiler", "lowering"}:
        with contextlib.suppress(Unknown):
            values, _ = _run_scheduled(kernel, wrong.buffer.run.arguments, wrong, Promoted())
            is_promoted = bool(find_close(decode(wrong.got), decode(values), wrong.tolerance).all())
            return replace(fault, is_promoted=is_promoted)
    return fault


def _run_scheduled(
    kernel: ScheduledKernel, names: Sequence[str | None], wrong: WrongBuffer, rounding: Rounding | None = None
) -> tuple[Array, Flags]:
    """Returns what a kernel writes to the buffer, in the right shape, and what of it is undefined. Raises Unknown."""
    with _numpy_refusals():
        contents = read_arguments(kernel.dtypes, names, wrong)
        written = run_kernel(kernel, {number: load(array) for number, array in contents.items()}, rounding)
    if 0 not in written:
        raise Unknown("it does not write its first buffer")
    data = encode(written[0].numbers, kernel.dtypes[0]).data
    undefined = wrong.align(written[0].mask.tobytes(), "bool")
    return wrong.align(data, wrong.right.dtype), decode(undefined)


def _find_scheduled_fault(evidence: Evidence, wrong: WrongBuffer, kernel: ScheduledKernel) -> KernelFault | None:
    """Returns the fault if the scheduler made it, None if the kernel as scheduled is right. Raises Unknown."""
    values, undefined = _run_scheduled(kernel, wrong.buffer.run.arguments, wrong)
    is_same = np.asarray(find_close(decode(wrong.got), decode(values), wrong.tolerance)) | undefined
    if is_same.all():
        return KernelFault("scheduler", is_same=True, stale=_find_stale_reads(evidence, wrong, kernel))
    if not undefined.any() and wrong.compare(values).status != "wrong":
        return None
    return KernelFault("scheduler", is_same=False)


def _find_stale_reads(evidence: Evidence, wrong: WrongBuffer, kernel: ScheduledKernel) -> tuple[StaleRead, ...]:
    """Returns the arguments that a kernel read at a wrong time: with what they held at another time it is right."""
    run = wrong.buffer.run
    for chosen in itertools.islice(_other_versions(run), _MOST_TRIED):
        names = list(run.arguments)
        for argument, version in chosen.items():
            names[argument] = run.versions[argument][version].name
        with contextlib.suppress(Unknown):
            found, undefined = _run_scheduled(kernel, names, wrong)
            if not undefined.any() and wrong.compare(found).status != "wrong":
                return tuple(_make_stale_read(evidence, run, *choice) for choice in chosen.items())
    return ()


def _other_versions(run: KernelRun) -> Iterator[dict[int, int]]:
    """Yields argument -> version of other contents: of one argument first, and the nearest versions first."""
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


def _make_stale_read(evidence: Evidence, run: KernelRun, argument: int, version: int) -> StaleRead:
    held = run.held[argument]
    assert held is not None
    is_late = version < held
    # the first write that came too early, or the write that came too late
    launch = run.versions[argument][version + is_late].launch
    writer = evidence.find_written(launch)
    return StaleRead(argument, is_late, writer and writer.kernel, writer and writer.node)


# *** memory that nothing has written


def _find_unwritten(evidence: Evidence, wrong: WrongBuffer) -> tuple[UnwrittenElements, ...]:
    """Returns the arguments of the kernel that nothing has written everywhere: its result, and what it reads if it
    gives other values with zeros there. Raises Unknown."""
    buffer, run = wrong.buffer, wrong.buffer.run
    left_out = int(find_unwritten(wrong.read(buffer.blob), ITEMSIZE[buffer.dtype]).sum())
    found = [UnwrittenElements(0, left_out)] if left_out else []
    if run.kernel is None:
        return tuple(found)
    kernel = evidence.kernels[run.kernel]
    before, _ = _run_scheduled(kernel, run.arguments, wrong)
    for argument, dtype in kernel.dtypes.items():
        name, itemsize = run.arguments[argument], ITEMSIZE[dtype]
        count = 0 if name is None else int(find_unwritten(wrong.read(name), itemsize).sum())
        if not argument or not count:
            continue

        def read(one: str, cleared: str | None = name, itemsize: int = itemsize) -> bytes:
            data = wrong.read(one)
            return clear_unwritten(data, itemsize) if one == cleared else data

        after, _ = _run_scheduled(kernel, run.arguments, replace(wrong, read=read))
        if after != before:
            found.append(UnwrittenElements(argument, count))
    return tuple(found)


# *** the linear program


def find_linear_fault(wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer whose kernel is right as the scheduler made it."""
    run = wrong.buffer.run
    if run.linear is None:
        return KernelFault("lowering", run.linear_refused)
    try:
        with _numpy_refusals():
            return _compare_linear(wrong, wrong.read(run.linear))
    except LeavesMemory as error:
        return KernelFault("codegen", str(error))
    except Unknown as error:
        return KernelFault("lowering", str(error))


def _compare_linear(wrong: WrongBuffer, data: bytes) -> KernelFault:
    found, is_computed = _run_linear(wrong, data)
    # what was not computed is not compared
    computed = np.where(is_computed, found, decode(wrong.right))
    if wrong.compare(encode(computed.reshape(wrong.right.shape), wrong.right.dtype)).status != "wrong":
        return KernelFault("compiler")
    is_same = np.asarray(find_close(decode(wrong.got), computed, wrong.tolerance)) | ~is_computed
    return KernelFault("codegen", is_same=bool(is_same.all()))


def _run_linear(wrong: WrongBuffer, data: bytes) -> tuple[Numbers, Flags]:
    """Runs the linear program of the kernel that wrote a wrong buffer, its argument 0: op after op, or if that takes
    long or is not possible, as a graph, for some of the wrong elements. Returns the elements of the right value, and
    which of them were computed. Raises Unknown, LeavesMemory."""
    uops, variables = load_program(data)
    program = read_linear(uops)
    accesses = [one for one in program.accesses if (one.buffer.space, one.buffer.slot) == ("global", 0)]
    if not any(one.is_store for one in accesses):
        raise LeavesMemory("it does not write its first buffer")
    dtypes = {buffer.slot: buffer.dtype for buffer in program.buffers if buffer.space == "global"}
    contents = read_arguments(dtypes, wrong.buffer.run.arguments, wrong)
    is_computed = np.ones(wrong.buffer.size, np.bool_)
    try:
        if count_steps(program) > MOST_STEPS:
            raise CannotRun(f"its linear program is too long to be run: over {MOST_STEPS:,} steps")
        memories = {slot: bytearray(array.data) for slot, array in contents.items()}
        run_program(uops, variables, memories)
        held = bytes(memories[0])
    except CannotRun:
        if not all(one.is_store for one in accesses):
            # what it reads there may be what an earlier step wrote
            raise
        run = Interpreter({slot: load(array) for slot, array in contents.items()}, variables)
        numbers, is_computed = run.run_stores(uops[-1], 0, wrong.mark_elements(_MOST_SHOWN))
        held = encode(numbers, dtypes[0]).data
    found, is_known = wrong.align(held, wrong.right.dtype), wrong.align(is_computed.tobytes(), "bool")
    return decode(found), decode(is_known)
