"""Finds the nodes of a Capture for the UOps that tinygrad was busy with when it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vmapdbg.model.ops import RESHAPING, STAGE_OPS

UOp = Any

# these ops only read a value, or store it
_VIEWS = RESHAPING | {"AFTER", "INDEX", "STORE", "END", *STAGE_OPS}


class KnownNodes:
    """The nodes of one run of a pass, for the schedule with number `schedule`; without arguments nothing is known.

    `ids` are the nodes' own ids. `held` maps a BUFFER to the node whose value it has, `following` maps a UOp to the
    UOp that rewrites made it from. `asts` are the ASTs of the compute kernels.
    """

    def __init__(
        self,
        schedule: int | None = None,
        ids: Mapping[UOp, int] = {},
        held: Mapping[UOp, UOp] = {},
        following: Mapping[UOp, UOp] = {},
        asts: Sequence[UOp] = (),
    ) -> None:
        self.schedule, self.ids, self.held, self.following, self.asts = schedule, ids, held, following, asts
        self._by_tag = {tag: u for u in ids for tag in _tags_of(u)}

    def find(self, u: UOp) -> int | None:
        """Returns the id of the node that a UOp has the value of, None if it is unknown."""
        while u is not None:
            tagged = (self._by_tag.get(tag) for tag in _tags_of(u))
            options = getattr(u.arg, "node", None)
            for node in (u, self.held.get(u), self.following.get(u), options, *tagged):
                if node in self.ids:
                    return self.ids[node]
            if u.op.name not in _VIEWS or not u.src:
                return None
            u = u.src[0]
        return None

    def find_kernel(self, ast: UOp | None) -> int | None:
        """Returns the number of the compute kernel that has this AST; code generation may change its options."""
        if ast is None:
            return None
        return next((number for number, one in enumerate(self.asts) if one.src == ast.src), None)


def _tags_of(u: UOp) -> list[int]:
    """tinygrad 0.12 numbers nodes; rewrites of a schedule keep the numbers."""
    if not isinstance(u.tag, tuple):
        return []
    return [tag for tag in u.tag if isinstance(tag, int)]


def read_nodes(recorder: Any) -> KnownNodes:
    """Returns what the recorder knows of the nodes of its last schedule."""
    from vmapdbg.child.capture.view import PassView

    schedules = recorder.schedules
    if not schedules:
        return KnownNodes()
    number, passed = len(schedules) - 1, schedules[-1].passed
    if passed is None:
        # it was refused before the pass could look at it
        return KnownNodes(number)
    view = PassView(passed)
    asts = [launch.ast for launch in view.launches if launch.is_compute]
    return KnownNodes(number, view.ids, passed.held, recorder.origin, asts)
