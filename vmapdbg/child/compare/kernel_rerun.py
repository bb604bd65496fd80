"""Runs the kernel of the first wrong buffer again by numpy, on what it really read, to find the stage that made the
fault. Runs in the process that compares.

If the kernel as scheduled gives the wrong values, too, the scheduler made the fault, or the kernel read memory at a
wrong time: with other contents of its arguments it is right. If the kernel as scheduled is right, its linear program
runs. Of many wrong elements some are computed."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.result import Comparison, KernelFault, StaleRead, UnwrittenElements, WrongLaunch, WrongVariable
from vmapdbg.child.compare.reference_values import ReadContents
from vmapdbg.child.evidence.evidence import Evidence, KernelRun, Version, WrittenBuffer
from vmapdbg.child.evidence.filling import clear_unwritten, find_unwritten, make_filling
from vmapdbg.child.program.interpret import Interpreter, LeavesMemory, ReadsOutside
from vmapdbg.child.program.linear_reader import read_memories
from vmapdbg.child.program.programs import load_program
from vmapdbg.child.program.uops import is_variable, loop_name
from vmapdbg.reference.arithmetic import load
from vmapdbg.reference.graph import Unknown
from vmapdbg.values.numbers import Array, Numbers, decode, encode, find_close, view_elements
from vmapdbg.values.tolerance import ITEMSIZE, Tolerance

MOST_COMPUTED = 4096  # how many of the wrong elements are computed
_MOST_TRIED = 64  # how many times a kernel runs on what its arguments held at other times

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

    def put_in(self, held: Numbers, dtype: str, wanted: Flags) -> tuple[Numbers, Flags]:
        """Returns the right value with the `wanted` elements that the buffer held, and where these are: what was not
        computed is not compared. Raises Unknown."""
        found = decode(self.align(encode(held, dtype).data, self.right.dtype))
        is_wanted = decode(self.align(wanted.tobytes(), "bool"))
        return np.where(is_wanted, found, decode(self.right)).reshape(self.right.shape), is_wanted


def find_fault(evidence: Evidence, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer."""
    fault = _find_maker(evidence, wrong)
    with contextlib.suppress(Unknown):
        return replace(fault, unwritten=tuple(_find_unwritten(wrong)))
    return fault


def _find_maker(evidence: Evidence, wrong: WrongBuffer) -> KernelFault:
    run = wrong.buffer.run
    reason = run.refused
    if run.kernel is not None:
        try:
            fault = _find_wrong_launch(evidence, wrong, run.kernel)
            fault = fault or _find_scheduled_fault(evidence, wrong, run.kernel)
            return fault or _explain_compiled(run.kernel, wrong, find_linear_fault(wrong))
        except Unknown as error:
            reason = str(error)
    # if the linear program is right, the scheduled kernel was right, too
    if find_linear_fault(wrong).made_by == "compiler":
        return KernelFault("compiler", reason)
    return KernelFault("not-told", reason)


# *** contents of a buffer


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


def _find_dtypes(uops: Sequence[Any]) -> dict[int, str]:
    """Returns the dtype of each argument of a kernel. Raises Unknown for an image."""
    memories = read_memories(uops)
    if any(memory.space == "image" for memory in memories):
        raise Unknown("it reads or writes an image")
    return {memory.slot: memory.dtype for memory in memories if memory.space == "global"}


# *** the kernel as scheduled


def _run(
    wrong: WrongBuffer,
    program: str,
    names: Sequence[str | None],
    is_linear: bool = False,
    promotes: bool = False,
    changed: Mapping[str, int] = {},
) -> bool | None:
    """Runs a kernel that was kept with the name `program`, on the contents `names` of its arguments, with `changed`
    values of variables. Returns None if the wrong elements are right then; else whether they are wrong in the same way.
    Raises Unknown."""
    try:
        uops, variables = load_program(wrong.read(program))
        variables = {**variables, **changed}
        dtypes = _find_dtypes(uops)
        contents = {slot: load(array) for slot, array in read_arguments(dtypes, names, wrong).items()}
        wanted = wrong.mark_elements(MOST_COMPUTED)
        run = Interpreter(contents, variables, promotes)
        if is_linear:
            run.text = uops
        held = run.run_strictly(uops[-1], 0, wanted)
        computed, is_computed = wrong.put_in(held, dtypes[0], wanted)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError) as error:
        # numpy refuses a malformed kernel or program
        raise Unknown(f"the reference failed: {type(error).__name__}: {error}") from error
    if wrong.compare(encode(computed, wrong.right.dtype)).status != "wrong":
        return None
    return bool((np.asarray(find_close(decode(wrong.got), computed.ravel(), wrong.tolerance)) | ~is_computed).all())


def _explain_compiled(kernel: str, wrong: WrongBuffer, fault: KernelFault) -> KernelFault:
    """Returns the fault of a kernel that is right as scheduled: the launch made it if the kernel gives the wrong values
    with two of its arguments exchanged, or with another value of a variable. A fault of the compiled code says whether
    C's integer promotion makes it."""
    if fault.made_by in {"compiler", "lowering"}:
        arguments = wrong.buffer.run.arguments
        for pair, names in _exchange_arguments(wrong):
            if _gives_wrong(wrong, kernel, names):
                return KernelFault("launch", is_same=True, launch=WrongLaunch(pair))
        for one in _change_variables(wrong, kernel):
            if _gives_wrong(wrong, kernel, arguments, changed={one.name: one.got}):
                return KernelFault("launch", is_same=True, launch=WrongLaunch(variable=one))
        return replace(fault, is_promoted=_gives_wrong(wrong, kernel, arguments, promotes=True))
    return fault


def _gives_wrong(wrong: WrongBuffer, kernel: str, names: Sequence[str | None], **changes: Any) -> bool:
    """Whether a kernel gives exactly the wrong values with some changes; not if it cannot be run with them."""
    try:
        return _run(wrong, kernel, names, **changes) is True
    except Unknown:
        return False


def _find_scheduled_fault(evidence: Evidence, wrong: WrongBuffer, kernel: str) -> KernelFault | None:
    """Returns the fault if the scheduler made it, None if the kernel as scheduled is right. Raises Unknown."""
    try:
        is_same = _run(wrong, kernel, wrong.buffer.run.arguments)
    except ReadsOutside:
        is_same = False
    if is_same is None:
        return None
    stale = _find_stale_reads(evidence, wrong, kernel) if is_same else ()
    return KernelFault("scheduler", is_same=is_same, stale=stale)


def _find_wrong_launch(evidence: Evidence, wrong: WrongBuffer, kernel: str) -> KernelFault | None:
    """Returns the fault if a kernel did not get the schedule's buffers, or did not run in the schedule's order, and is
    right with what it should have read."""
    planned = wrong.buffer.run.planned
    tried: list[tuple[Sequence[str | None], WrongLaunch]] = []
    if planned is not None:
        tried.append((planned.names, WrongLaunch(planned.others)))
    if evidence.is_reordered:
        tried.append((_read_in_order(evidence, wrong.buffer), WrongLaunch()))
    for names, launch in tried:
        with contextlib.suppress(Unknown):
            if _run(wrong, kernel, names) is None:
                return KernelFault("launch", launch=launch)
    return None


def _read_in_order(evidence: Evidence, buffer: WrittenBuffer) -> list[str | None]:
    """Returns what the arguments of a kernel hold if all launches run in the schedule's order."""
    places: dict[int | None, int] = {one.launch: place for place, one in enumerate(evidence.buffers)}
    place = places[buffer.launch]

    def find_place(version: Version) -> int:
        return -1 if version.launch is None else places.get(version.launch, place)

    found: list[str | None] = []
    for versions in buffer.run.versions:
        before = [version for version in versions if find_place(version) < place]
        found.append(max(before, key=find_place).name if before else None)
    return found


def _change_variables(wrong: WrongBuffer, kernel: str) -> Iterator[WrongVariable]:
    """Yields values that a variable of the kernel may have had by mistake: one less or one more than its own, its
    smallest, its largest, and the values of other variables."""
    uops, variables = load_program(wrong.read(kernel))
    for u in filter(is_variable, uops):
        if (name := loop_name(u)) not in variables:
            continue
        own, low, high = variables[name], int(u.vmin), int(u.vmax)
        others = dict.fromkeys([own - 1, own + 1, *variables.values(), low, high])
        for other in others:
            if other != own and low <= other <= high:
                yield WrongVariable(name, other, own)


def _exchange_arguments(wrong: WrongBuffer) -> Iterator[tuple[tuple[int, int], list[str | None]]]:
    """Yields two arguments, and what all held with these exchanged. Only inputs of the same size and with other
    contents are exchanged."""
    names = wrong.buffer.run.arguments
    sizes = {number: len(wrong.read(name)) for number, name in enumerate(names) if number and name is not None}
    pairs = ((one, other) for one, other in itertools.combinations(sizes, 2) if sizes[one] == sizes[other])
    for one, other in itertools.islice(pairs, _MOST_TRIED):
        exchanged = list(names)
        exchanged[one], exchanged[other] = names[other], names[one]
        if names[one] != names[other]:
            yield (one, other), exchanged


def _find_stale_reads(evidence: Evidence, wrong: WrongBuffer, kernel: str) -> tuple[StaleRead, ...]:
    """Returns the arguments that a kernel read at a wrong time: with what they held at another time it is right."""
    run = wrong.buffer.run
    for chosen in itertools.islice(_other_versions(run), _MOST_TRIED):
        names = list(run.arguments)
        for argument, version in chosen.items():
            names[argument] = run.versions[argument][version].name
        with contextlib.suppress(Unknown):
            if _run(wrong, kernel, names) is None:
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


def _find_unwritten(wrong: WrongBuffer) -> Iterator[UnwrittenElements]:
    """Yields the arguments of the kernel that nothing has written everywhere: its result, and what it reads if it does
    not give the same wrong values with zeros there. Raises Unknown."""
    buffer, run = wrong.buffer, wrong.buffer.run
    left_out = int(find_unwritten(wrong.read(buffer.blob), ITEMSIZE[buffer.dtype]).sum())
    if left_out:
        yield UnwrittenElements(0, left_out)
    if run.kernel is None:
        return
    dtypes = _find_dtypes(load_program(wrong.read(run.kernel))[0])
    for argument, dtype in dtypes.items():
        name, itemsize = run.arguments[argument], ITEMSIZE[dtype]
        count = 0 if name is None else int(find_unwritten(wrong.read(name), itemsize).sum())
        if not argument or not count:
            continue

        def read(one: str, cleared: str | None = name, itemsize: int = itemsize) -> bytes:
            data = wrong.read(one)
            return clear_unwritten(data, itemsize) if one == cleared else data

        if _run(replace(wrong, read=read), run.kernel, run.arguments) is not True:
            yield UnwrittenElements(argument, count)


# *** the linear program


def find_linear_fault(wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer whose kernel is right as the scheduler made it."""
    run = wrong.buffer.run
    if run.linear is None:
        return KernelFault("lowering", run.linear_refused)
    try:
        is_same = _run(wrong, run.linear, run.arguments, is_linear=True)
    except LeavesMemory as error:
        return KernelFault("codegen", str(error))
    except Unknown as error:
        return KernelFault("lowering", str(error))
    if is_same is None:
        return KernelFault("compiler")
    return KernelFault("codegen", is_same=is_same)
