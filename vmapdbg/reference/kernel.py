"""A kernel as the scheduler made it, in the form of a graph: what `vmapdbg.reference.run_kernel` evaluates.

Every loop of the kernel is a step range, known by the number that it has in tinygrad, so that a node has one value for
each step of the loops that it depends on, and no axes of its own. Beside the ops of `vmapdbg.reference.graph.OPS` there
are those of KERNEL_OPS.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vmapdbg.reference.graph import Graph

KERNEL_OPS = {
    "load": "the number of the argument that is read; sources: the place in it, and where there is one the condition "
    "under which it is read (else the value is zero)",
    "pick": "for each dimension of a buffer inside of the kernel the step range that was closed there, None for one of "
    "size 1; sources: the value that the buffer holds, and an index for each of its dimensions",
}
"""Op -> what its `arg` says."""


@dataclass(frozen=True)
class Store:
    """What is written: the number of the argument, and the positions of the place in it, of the value, and of the
    condition under which it is written (None where there is none)."""

    argument: int
    place: int
    value: int
    gate: int | None = None

    @property
    def slots(self) -> tuple[int, ...]:
        """The positions of all that has to be known."""
        gate = () if self.gate is None else (self.gate,)
        return (self.place, self.value, *gate)


@dataclass
class Kernel:
    """The graph has no roots: what is asked for is the `stores`, in their order. `dtypes` has the dtype of the elements
    of each argument that is read or written, by its number."""

    graph: Graph = field(default_factory=Graph)
    stores: list[Store] = field(default_factory=list)
    dtypes: dict[int, str] = field(default_factory=dict)
