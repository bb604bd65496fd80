"""Separates faults of code generation from later faults: runs the linear program of a kernel on what the kernel read.
Runs in the process that compares.

A program that takes long runs once for each of some wrong elements, with its loops fixed to the steps that write it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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
from vmapdbg.child.compare.reference_values import ReadContents
from vmapdbg.child.program.accesses import carries_values
from vmapdbg.child.program.linear import LinearProgram, MemoryAccess, ProgramLoop, Undecided, UOp, Value, find_loops
from vmapdbg.child.program.linear_reader import read_linear
from vmapdbg.child.program.programs import CannotRun, LeavesMemory, count_steps, load_program, run_program
from vmapdbg.child.program.reach import evaluate_sums
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.kernels import Written
from vmapdbg.values.numbers import Array, decode, encode, find_close

MOST_STEPS = 400_000
"""The most ops that run: about two seconds."""
_MOST_SHOWN = 16
"""How many of the wrong elements are computed if not all are."""
_MOST_ADDRESSES = 1 << 23
"""The most steps of the loops around a store whose addresses are compared with those of the wrong elements."""

Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
Fixed = dict[UOp, int]


def find_linear_fault(read: ReadContents, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer whose kernel is right as the scheduler made it."""
    run = wrong.buffer.run
    if run.linear is None:
        return KernelFault("lowering", run.linear_refused)
    try:
        return _judge(LinearRun(read, wrong, read(run.linear)))
    except LeavesMemory as error:
        return KernelFault("codegen", str(error))
    except (CannotRun, Unknown) as error:
        return KernelFault("lowering", str(error))
    except REFUSED_BY_NUMPY as error:
        return KernelFault("lowering", describe_refusal(error))


def _judge(run: LinearRun) -> KernelFault:
    wrong = run.wrong
    if not run.stores:
        return KernelFault("codegen", "it does not write its first buffer")
    got, right = decode(wrong.got), decode(wrong.right)
    is_wrong = ~np.asarray(find_close(got, right, wrong.tolerance))
    data, is_computed = run.compute(is_wrong)
    written = Array(data, wrong.right.dtype, (wrong.buffer.size,))
    found = arrange(Written(written, None), wrong.buffer, wrong.right, wrong.ambient)
    if isinstance(found, str):
        return KernelFault("lowering", found)
    # what was not computed is not compared
    computed = np.where(is_computed, decode(found[0]), right)
    as_bytes = encode(computed, wrong.right.dtype).data
    if wrong.compare(Array(as_bytes, wrong.right.dtype, wrong.right.shape)).status != "wrong":
        return KernelFault("compiler")
    is_same = np.asarray(find_close(got, computed, wrong.tolerance)) | ~is_computed
    return KernelFault("codegen", is_same=bool(is_same.all()))


class LinearRun:
    """Runs the linear program of the kernel that wrote a wrong buffer, its argument 0. Raises CannotRun."""

    def __init__(self, read: ReadContents, wrong: WrongBuffer, data: bytes):
        self.wrong = wrong
        self.uops, self.variables = load_program(data)
        self.program = read_linear(self.uops)
        arguments = [buffer for buffer in self.program.buffers if buffer.space == "global"]
        dtypes = {buffer.slot: buffer.dtype for buffer in arguments}
        self.contents = read_arguments(dtypes, wrong.buffer.run.arguments, wrong.buffer, read)
        self.stores = [access for access in self.program.accesses if access.is_store and _is_argument_0(access)]

    def compute(self, is_wrong: Flags) -> tuple[bytes, Flags]:
        """Returns what the program writes, and for which of the elements it ran. Raises CannotRun, LeavesMemory."""
        if count_steps(self.program) > MOST_STEPS:
            return self.compute_some(is_wrong)
        memories = self._copy_contents()
        run_program(self.uops, self.variables, memories)
        return bytes(memories[0]), np.ones(is_wrong.shape, np.bool_)

    def compute_some(self, is_wrong: Flags) -> tuple[bytes, Flags]:
        """Like `compute`, for some of the wrong elements: loops are fixed to the steps that write them."""
        memories = self._copy_contents()
        chosen = _choose(is_wrong)
        places = self._find_places()[chosen]
        is_computed = np.zeros(is_wrong.shape, np.bool_)
        left = MOST_STEPS
        for element, fixed in zip(chosen, self._find_steps(places), strict=True):
            left -= count_steps(self.program, fixed)
            if left < 0:
                break
            run_program(self.uops, self.variables, memories, fixed)
            is_computed[element] = True
        if not is_computed.any():
            raise CannotRun(f"its linear program is too long to be run: over {MOST_STEPS:,} steps")
        return bytes(memories[0]), is_computed

    def _copy_contents(self) -> dict[int, bytearray]:
        return {slot: bytearray(array.data) for slot, array in self.contents.items()}

    def _find_places(self) -> Whole:
        """Maps each element of the right value to its index in the buffer."""
        buffer, shape = self.wrong.buffer, self.wrong.right.shape
        numbers = np.arange(buffer.size, dtype=np.int64)
        like = Array(bytes(math.prod(shape) * numbers.itemsize), "long", shape)
        aligned = align_buffer(buffer, numbers.tobytes(), like, self.wrong.ambient)
        if isinstance(aligned, str):
            raise CannotRun(aligned)
        return decode(aligned)

    def _find_steps(self, places: Whole) -> list[Fixed]:
        """Returns for each of some elements of the buffer the steps of loops and threads that write it: none if they
        are not known, or if the program reads the buffer, too."""
        found: list[list[Fixed]] = [[] for _ in places]
        try:
            if any(_is_argument_0(access) and not access.is_store for access in self.program.accesses):
                raise Undecided
            for store in self.stores:
                for known, steps in zip(found, self._find_steps_of(store, places), strict=True):
                    known += steps
        except Undecided:
            return [{} for _ in places]
        return [known[0] if len(known) == 1 else {} for known in found]

    def _find_steps_of(self, store: MemoryAccess, places: Whole) -> Iterator[list[Fixed]]:
        """Yields for each of some elements the steps at which a store writes it. Raises Undecided."""
        used = find_loops(store.index, {loop: loop.trips for loop in store.loops})
        sizes: dict[Value, int] = {loop: loop.trips for loop in store.loops if loop in used}
        if math.prod(sizes.values()) > _MOST_ADDRESSES:
            raise Undecided
        addresses = np.concatenate(list(evaluate_sums([(store.index, 1)], [], sizes)))
        free = [loop for loop in store.loops if loop in used and _is_independent(self.program, loop)]
        for place in places:
            hits = np.flatnonzero((addresses <= place) & (place < addresses + store.width))
            # one axis more: numpy has no index of no axis
            steps = dict(zip(sizes, np.unravel_index(hits, (*sizes.values(), 1)), strict=False))
            yield [{loop.uop: int(steps[loop][hit]) for loop in free} for hit in range(len(hits))]


def _is_argument_0(access: MemoryAccess) -> bool:
    return access.buffer.space == "global" and access.buffer.slot == 0


def _is_independent(program: LinearProgram, loop: ProgramLoop) -> bool:
    """Returns whether a step of a loop does the same if the other steps do not run."""
    if loop.op == "thread":
        # the threads of a group share memory
        return not loop.name.startswith("l")
    return not carries_values(program, loop)


def _choose(is_wrong: Flags) -> Whole:
    """Returns the first wrong elements, and some of the others."""
    found = np.flatnonzero(is_wrong)
    spread = np.linspace(0, len(found) - 1, _MOST_SHOWN // 2).astype(np.int64)
    return np.unique(np.concatenate([found[: _MOST_SHOWN // 2], found[spread]]))
