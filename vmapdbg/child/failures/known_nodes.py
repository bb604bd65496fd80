"""Which node of the Capture a UOp stands for that tinygrad had in its hands when it failed."""

from __future__ import annotations

from typing import Any, Protocol

UOp = Any


class KnownNodes(Protocol):
    """What is known of the schedule that was made last."""

    @property
    def schedule(self) -> int | None:
        """The number of the schedule; None where there is none."""
        ...

    def find(self, u: UOp) -> int | None:
        """Returns the id of the node that a UOp stands for, None where none is known."""
        ...

    def find_kernel(self, ast: UOp | None) -> int | None:
        """Returns the number of the compute kernel that has this AST."""
        ...


class NoNodes:
    """Where nothing was recorded."""

    schedule = None

    def find(self, u: UOp) -> None:
        return None

    def find_kernel(self, ast: UOp | None) -> None:
        return None


class PassNodes:
    """Those of a run of a pass: `ids` are the nodes' own, `held` has the node whose value is in a BUFFER, `following`
    what became of nodes since, by rewrites."""

    def __init__(
        self, schedule: int, ids: dict[UOp, int], held: dict[UOp, UOp], following: dict[UOp, UOp], asts: list[UOp]
    ) -> None:
        self.schedule: int | None = schedule
        self.ids, self.held, self.following, self.asts = ids, held, following, asts
        self._by_tag = {tag: u for u in ids for tag in _find_tags(u)}

    def find(self, u: UOp) -> int | None:
        while u is not None:
            known = self._find_one(u)
            if known is not None:
                return known
            if u.op.name not in _VIEWS or not u.src:
                return None
            u = u.src[0]
        return None

    def find_kernel(self, ast: UOp | None) -> int | None:
        if ast is None:
            return None
        # it gets other options on the way
        return next((number for number, one in enumerate(self.asts) if one.src == ast.src), None)

    def _find_one(self, u: UOp) -> int | None:
        tagged = (self._by_tag.get(tag) for tag in _find_tags(u))
        options = getattr(u.arg, "node", None)
        for node in (u, self.held.get(u), self.following.get(u), options, *tagged):
            if node in self.ids:
                return self.ids[node]
        return None


# what only looks at a value, or stores it
_VIEWS = frozenset(
    {"AFTER", "INDEX", "RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "BUFFERIZE", "STAGE", "STORE", "END"}
)


def _find_tags(u: UOp) -> list[int]:
    """tinygrad 0.12 gives nodes numbers, which go with them through the rewrites of a schedule."""
    if not isinstance(u.tag, tuple):
        return []
    return [tag for tag in u.tag if isinstance(tag, int)]


def read_nodes(recorder: Any) -> KnownNodes:
    """Returns what the recorder knows of the nodes of its last schedule."""
    from vmapdbg.child.capture.view import PassView

    schedules = recorder.schedules
    if not schedules:
        return NoNodes()
    number, passed = len(schedules) - 1, schedules[-1].passed
    if passed is None:
        # it was refused before the pass could look at it
        return PassNodes(number, {}, {}, {}, [])
    view = PassView(passed)
    asts = [launch.ast for launch in view.launches if launch.is_compute]
    return PassNodes(number, view.ids, passed.held, recorder.origin, asts)
