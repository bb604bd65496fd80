"""A realize map that tells who puts a node into it. It is a dict in all else: looking up runs at the speed of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from types import FrameType
from typing import Any

from vmapdbg.child.listen.records import UOp

Axes = list[int] | None


class RecordingMap(dict[Any, Any]):
    """node -> the axes that are realized, None for all. `put` and `taken` are called before each change, with the frame
    that makes it. To list the axes of a node that is there with all of them decides nothing, and is not told.

    `forced` nodes are in it from the start. A rule that asks for all axes of one of the `released` nodes is not heard;
    the pass itself may still realize some of them.
    """

    def __init__(
        self,
        put: Callable[[UOp, Axes, FrameType], None],
        taken: Callable[[UOp, FrameType], None],
        forced: Iterable[UOp] = (),
        released: Collection[UOp] = (),
    ) -> None:
        super().__init__(dict.fromkeys(forced))
        self._put, self._taken, self._released = put, taken, released

    def _is_refused(self, node: UOp, axes: Axes) -> bool:
        return axes is None and node in self._released

    def _tell(self, node: UOp, axes: Axes, frame: FrameType) -> None:
        lists_axes = axes is not None and node in self and self[node] is None
        if not lists_axes:
            self._put(node, axes, frame)

    def __setitem__(self, node: UOp, axes: Axes) -> None:
        if self._is_refused(node, axes):
            return
        self._tell(node, axes, sys._getframe(1))
        super().__setitem__(node, axes)

    def setdefault(self, node: UOp, axes: Axes = None) -> Axes:
        if self._is_refused(node, axes):
            return axes
        if node not in self:
            self._tell(node, axes, sys._getframe(1))
        return super().setdefault(node, axes)

    def update(  # type: ignore[override]
        self, other: Mapping[UOp, Axes] | Iterable[tuple[UOp, Axes]] = (), /
    ) -> None:
        frame = sys._getframe(1)
        if isinstance(other, Mapping):
            other = other.items()
        for node, axes in other:
            if self._is_refused(node, axes):
                continue
            self._tell(node, axes, frame)
            super().__setitem__(node, axes)

    def __delitem__(self, node: UOp) -> None:
        self._taken(node, sys._getframe(1))
        super().__delitem__(node)

    def pop(self, node: UOp, *default: Any) -> Any:
        self._taken(node, sys._getframe(1))
        return super().pop(node, *default)
