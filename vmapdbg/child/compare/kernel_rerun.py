"""Runs the kernel of the first wrong buffer again by numpy, on what it really read, to find the stage that made the
fault. Runs in the process that compares.

If the kernel as scheduled gives the wrong values, too, the scheduler made the fault, or the kernel read memory at a
wrong time: with other contents of its arguments it is right. If the kernel as scheduled is right, its linear program
runs. If that takes long, it runs once for each of some wrong elements, with its loops fixed to the steps that write it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.result import Comparison, KernelFault, StaleRead
from vmapdbg.child.compare.reference_values import ReadContents
from vmapdbg.child.evidence.evidence import Evidence, KernelRun, WrittenBuffer
from vmapdbg.child.program.accesses import carries_values
from vmapdbg.child.program.linear import MemoryAccess, ProgramLoop, UOp, Value, find_loops
from vmapdbg.child.program.linear_reader import read_linear
from vmapdbg.child.program.programs import LeavesMemory, count_steps, load_program, run_program
from vmapdbg.child.program.reach import evaluate_sums
from vmapdbg.reference.arithmetic import Promoted, Rounding, load
from vmapdbg.reference.graph import ScheduledKernel, Unknown
from vmapdbg.reference.kernels import run_kernel
from vmapdbg.values.numbers import Array, decode, encode, find_close, view_elements
from vmapdbg.values.tolerance import ITEMSIZE, Tolerance

MOST_STEPS = 400_000
"""The most ops of a linear program that run: about two seconds."""
_MOST_SHOWN = 16
"""How many of the wrong elements are computed if not all are."""
_MOST_ADDRESSES = 1 << 23
"""The most steps of the loops around a store whose addresses are compared with the places of the wrong elements."""
_MOST_TRIED = 64
"""How many times a kernel runs on what its arguments held at other times."""

Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
Fixed = dict[UOp, int]


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


def find_fault(evidence: Evidence, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer."""
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


def _read_arguments(dtypes: Mapping[int, str], names: Sequence[str | None], wrong: WrongBuffer) -> dict[int, Array]:
    """Returns what the arguments of a kernel held before it ran; `names` are their contents. Raises Unknown."""
    found: dict[int, Array] = {}
    for number, dtype in dtypes.items():
        name = names[number]
        if name is None and number != 0:
            raise Unknown("what it reads was not kept")
        # memory that was never written may hold anything
        data = bytes(wrong.buffer.size * ITEMSIZE[dtype])
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
        contents = _read_arguments(kernel.dtypes, names, wrong)
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


def _compare_linear(wrong: WrongBuffer, program: bytes) -> KernelFault:
    run = LinearRun(wrong, program)
    if not run.stores:
        return KernelFault("codegen", "it does not write its first buffer")
    got, right = decode(wrong.got), decode(wrong.right)
    is_wrong = ~np.asarray(find_close(got, right, wrong.tolerance))
    data, is_computed = run.compute(is_wrong)
    found = wrong.align(data, wrong.right.dtype)
    # what was not computed is not compared
    computed = np.where(is_computed, decode(found), right)
    if wrong.compare(encode(computed.reshape(wrong.right.shape), wrong.right.dtype)).status != "wrong":
        return KernelFault("compiler")
    is_same = np.asarray(find_close(got, computed, wrong.tolerance)) | ~is_computed
    return KernelFault("codegen", is_same=bool(is_same.all()))


class LinearRun:
    """Runs the linear program of the kernel that wrote a wrong buffer, its argument 0. Raises Unknown."""

    def __init__(self, wrong: WrongBuffer, data: bytes):
        self.wrong = wrong
        self.uops, self.variables = load_program(data)
        self.program = read_linear(self.uops)
        dtypes = {buffer.slot: buffer.dtype for buffer in self.program.buffers if buffer.space == "global"}
        contents = _read_arguments(dtypes, wrong.buffer.run.arguments, wrong)
        self.memories = {slot: bytearray(array.data) for slot, array in contents.items()}
        accesses = [one for one in self.program.accesses if (one.buffer.space, one.buffer.slot) == ("global", 0)]
        self.stores = [access for access in accesses if access.is_store]
        self.reads_result = len(self.stores) < len(accesses)

    def compute(self, is_wrong: Flags) -> tuple[bytes, Flags]:
        """Returns what the program writes, and which of the elements it computed. Raises Unknown, LeavesMemory."""
        is_computed = np.ones(is_wrong.shape, np.bool_)
        if count_steps(self.program) > MOST_STEPS:
            is_computed = self.run_some(is_wrong)
        else:
            run_program(self.uops, self.variables, self.memories)
        return bytes(self.memories[0]), is_computed

    def run_some(self, is_wrong: Flags) -> Flags:
        """Computes some of the wrong elements: loops are fixed to the steps that write them. Returns which."""
        found = np.flatnonzero(is_wrong)
        # the first wrong elements, and some of the others
        spread = np.linspace(0, len(found) - 1, _MOST_SHOWN // 2).astype(np.int64)
        chosen = np.unique(np.concatenate([found[: _MOST_SHOWN // 2], found[spread]]))
        # element of the right value -> its index in the buffer
        numbers = np.arange(self.wrong.buffer.size, dtype=np.int64)
        places = decode(self.wrong.align(numbers.tobytes(), "long"))
        is_computed = np.zeros(is_wrong.shape, np.bool_)
        left = MOST_STEPS
        for element, fixed in zip(chosen, self._find_steps(places[chosen]), strict=True):
            left -= count_steps(self.program, fixed)
            if left < 0:
                break
            run_program(self.uops, self.variables, self.memories, fixed)
            is_computed[element] = True
        if not is_computed.any():
            raise Unknown(f"its linear program is too long to be run: over {MOST_STEPS:,} steps")
        return is_computed

    def _find_steps(self, places: Whole) -> list[Fixed]:
        """Returns for some elements the steps of loops and threads that write each; none if unknown or also read."""
        found: list[list[Fixed]] = [[] for _ in places]
        try:
            if self.reads_result:
                raise Unknown
            for store in self.stores:
                for known, steps in zip(found, self._find_steps_of(store, places), strict=True):
                    known += steps
        except Unknown:
            return [{} for _ in places]
        return [known[0] if len(known) == 1 else {} for known in found]

    def _find_steps_of(self, store: MemoryAccess, places: Whole) -> Iterator[list[Fixed]]:
        """Yields for each of some elements the steps at which a store writes it. Raises Unknown."""
        used = find_loops(store.index, {loop: loop.trips for loop in store.loops})
        sizes: dict[Value, int] = {loop: loop.trips for loop in store.loops if loop in used}
        if math.prod(sizes.values()) > _MOST_ADDRESSES:
            raise Unknown
        addresses = np.concatenate(list(evaluate_sums([(store.index, 1)], [], sizes)))
        free = [loop for loop in store.loops if loop in used and self._is_independent(loop)]
        for place in places:
            hits = np.flatnonzero((addresses <= place) & (place < addresses + store.width))
            # one axis more: numpy has no index of no axis
            steps = dict(zip(sizes, np.unravel_index(hits, (*sizes.values(), 1)), strict=False))
            yield [{loop.uop: int(steps[loop][hit]) for loop in free} for hit in range(len(hits))]

    def _is_independent(self, loop: ProgramLoop) -> bool:
        """Returns whether a step of a loop does the same if the other steps do not run."""
        if loop.op == "thread":
            # the threads of a group share memory
            return not loop.name.startswith("l")
        return not carries_values(self.program, loop)
