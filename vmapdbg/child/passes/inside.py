"""The value of a node inside of a kernel as the scheduler made it, by numpy on what the kernel reads.

Runs in the child.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vmapdbg.child.evidence.kernel_packer import KernelPacker
from vmapdbg.child.passes.compare import Judge
from vmapdbg.child.passes.forms import Form
from vmapdbg.child.passes.mixed_packer import MEMORY, MixedPacker, find_buffer
from vmapdbg.child.passes.order import OrderedKernels
from vmapdbg.child.passes.records import PassRun
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.kinds import load
from vmapdbg.reference.run_kernel import MOST_AT_ONCE, KernelEvaluator
from vmapdbg.reference.value import Value
from vmapdbg.values.numbers import Numbers, encode

UOp = Any


@dataclass(frozen=True)
class KernelValue:
    """A form of a node in a kernel, at the loops of the kernel. The kernel was made of the UOp `stored` in the end, and
    uses the `buffers`."""

    form: Form
    stored: UOp
    buffers: frozenset[UOp]

    def find_launch(self, order: OrderedKernels) -> int:
        """Returns the number of the one launch of the kernel. Raises Unknown where there is none, or several."""
        found = [number for number, launch in enumerate(order.launches) if self._is_made(launch.ast)]
        if len(found) > 1:
            # kernels that are alike are told from each other by their buffers
            found = [number for number in found if set(order.launches[number].buffers) == self.buffers]
        if len(found) != 1:
            raise Unknown("its kernel is launched several times" if found else "its kernel is not among the launches")
        return found[0]

    def _is_made(self, ast: UOp) -> bool:
        return ast is self.stored or self.stored in ast.src

    def evaluate(self, order: OrderedKernels, number: int, packer: MixedPacker, judge: Judge) -> Value:
        """Returns the value, its step ranges named as by `packer`. Raises Unknown and CannotPack."""
        launch = order.launches[number]
        kernel = KernelPacker({**packer.sizes.variables, **launch.variables})
        slot = kernel.pack(self.form.u)
        graph = kernel.graph
        if math.prod(graph.ranges.values()) > MOST_AT_ONCE:
            raise Unknown("it has too many steps")
        held = judge.evaluate(order.given[number])
        memories = {at: _read(held[at], dtype) for at, dtype in kernel.kernel.dtypes.items()}
        value = KernelEvaluator(graph, memories, {}).evaluate([slot])[0]
        if isinstance(value, Unknown):
            raise value
        return _rename(value, kernel, packer)


def find_inside(forms: Sequence[Form], run: PassRun) -> Iterator[KernelValue]:
    """Yields what stands for a node inside of the kernels that a pass makes."""
    for form in forms:
        # memory is outside of kernels
        if form.kind == "buffer" or form.u.op.name in MEMORY:
            continue
        u = run.made.get(form.u, form.u)
        for inner in run.inner:
            if any(one.op.name == "COPY" for one in inner.after.toposort()):
                continue
            made = inner.made
            found = made.get(u, made.get(form.u))
            if found is not None and found in inner.after.toposort():
                buffers = frozenset(find_buffer(one) for one in made if one.op.name in {"AFTER", *MEMORY})
                yield KernelValue(form.move(made, found), inner.after, buffers)


def _read(held: Value | Unknown, dtype: str) -> Numbers:
    if isinstance(held, Unknown):
        raise held
    if held.ranges:
        raise Unknown("memory depends on a step")
    if held.mask.any():
        raise Unknown("it reads memory that nobody wrote")
    return load(encode(held.numbers.reshape(-1), dtype))


def _rename(value: Value, kernel: KernelPacker, packer: MixedPacker) -> Value:
    """Returns a value of a kernel with its step ranges named as another packer names them."""
    names: list[int] = []
    for name in value.ranges:
        r = kernel.find_range(name)
        assert r is not None
        packer.pack(r)
        names.append(packer.name_range(r))
    order = np.argsort(names)
    moved = value.move(lambda a: np.transpose(a, order))
    return replace(moved, ranges=tuple(names[i] for i in order))
