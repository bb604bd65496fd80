"""What is kept of the passes of one call of `Tensor.realize`."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

UOp = Any


@dataclass
class PassRun:
    """One rewrite of a whole graph by the scheduler: its name, the `file:line` that asks for it, the graph before and
    after it. `rewrites` are what its rules made of what, in order; `context` is tinygrad's RewriteContext. `inner` are
    the rewrites that made a kernel of a part of the graph meanwhile."""

    name: str
    place: str | None
    before: UOp
    context: Any
    after: UOp = None
    rewrites: list[tuple[UOp, UOp]] = field(default_factory=list)
    inner: list[PassRun] = field(default_factory=list)

    @functools.cached_property
    def made(self) -> dict[UOp, UOp]:
        """What became of each UOp of the graph before the pass, and of those on the way: from the root down a rule is
        applied to what another one made before tinygrad notes what comes out."""
        replaced: dict[UOp, UOp] = dict(self.context.replace)
        rewritten = dict(self.rewrites)
        for first, last in list(replaced.items()):
            u = first
            while (u := rewritten.get(u)) is not None and u not in replaced:
                replaced[u] = last
        return replaced


@dataclass
class Chain:
    """The passes that one call of a function of the scheduler's makes, in order. It may be called again, where what it
    made is dropped, and within a call, for a part of the graph."""

    function: str
    frame: FrameType | None
    runs: list[PassRun] = field(default_factory=list)


@dataclass(frozen=True)
class Created:
    """A schedule that was made: the graph of kernels, and the launches in order, as tinygrad has them."""

    graph: UOp
    launches: Any


@dataclass
class Watched:
    """What was seen during one call of `Tensor.realize`."""

    chains: list[Chain] = field(default_factory=list)
    created: list[Created] = field(default_factory=list)
