"""The user's line of each UOp: noted where the UOp is made, followed through the rewrites before the rangeify pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from vmapdbg.child.record.lines import find_user_file, set_internal_folders
from vmapdbg.child.record.observe.records import UOp

# the attribute that a UOp has its line in; UOps have a __dict__, which tinygrad itself keeps what it computed in
_LINE = "_vmapdbg_line"
# what tinygrad makes of all outputs together, where the user asks for them
_NO_LINE = frozenset({"SINK", "CALL", "FUNCTION"})
# hash-consed: the line where such a UOp was made first says nothing about its use here
_SHARED = frozenset({"CONST", "VCONST", "DEVICE"})
_INDEX_TYPES = ("index", "weakint")
# a frame with this name is an import: what a module makes at that time belongs to no line
_IMPORT = "<frozen importlib._bootstrap>"


class UserLines:
    """Tells the user's lines: files outside tinygrad, the standard library and vmapdbg are the user's."""

    def __init__(self, tinygrad_folder: str) -> None:
        set_internal_folders(tinygrad_folder)
        # UOps of the schedule being made -> line, for what a rewrite made of a user's UOp
        self.followed: dict[UOp, str] = {}
        # the line of a UOp that is made now
        self._find = self.find_user_line

    def find_user_line(self) -> str | None:
        """Returns `file:number` of the innermost frame that is the user's; None without one, and while a module is
        imported."""
        frame = sys._getframe(1)
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename == _IMPORT:
                return None
            file = find_user_file(filename)
            if file is not None and (filename[0] != "<" or _is_users_text(frame)):
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back
        return None

    def noting(self, make: Callable[..., UOp]) -> Callable[..., UOp]:
        """Returns `UOpMetaClass.__call__` that notes the user's line at each UOp that has none."""

        def noting(cls: Any, *args: Any, **kwargs: Any) -> UOp:
            made = make(cls, *args, **kwargs)
            attributes = made.__dict__
            if _LINE not in attributes:
                attributes[_LINE] = self._find()
            return made

        return noting

    @contextmanager
    def holding(self, line: str | None) -> Iterator[None]:
        """Has every UOp that is made meanwhile get this line; with None that of its first consumer."""
        before = self._find
        self._find = lambda: line
        try:
            yield
        finally:
            self._find = before

    def holding_gradient(self, rewrite: Callable[..., Any], uop: UOp, ctx: Any = None) -> Any:
        """Has what tinygrad's rules for gradients make of a UOp get the line of that UOp, not that of `backward()`."""
        with self.holding(self.own_line(uop)):
            return rewrite(uop, ctx)

    def follow(self, replaced: Mapping[UOp, UOp]) -> None:
        """What a rewrite put in the place of a UOp has its line, with what it made for that below it."""
        followed = self.followed
        made: list[tuple[UOp, str]] = []
        for old, new in replaced.items():
            if old is not new and new not in followed:
                line = followed.get(old) or old.__dict__.get(_LINE)
                if line is not None and old.op.name not in _SHARED:
                    followed[new] = line
                    made.append((new, line))
        # when all that was replaced has its line: what is below may be another one's
        for new, line in made:
            self._spread(new, line)

    def _spread(self, made: UOp, line: str) -> None:
        todo = list(made.src)
        while todo:
            uop = todo.pop()
            if uop not in self.followed and _LINE not in uop.__dict__:
                self.followed[uop] = line
                todo += uop.src

    def own_line(self, uop: UOp) -> str | None:
        """The line where a UOp was made; None for one that is shared by all who ever ask for it (a constant)."""
        if uop.op.name in _SHARED or str(uop.dtype).endswith(_INDEX_TYPES):
            return None
        return self.followed.get(uop) or uop.__dict__.get(_LINE) or _noted_caller(uop)

    def find_lines(self, toposort: Mapping[UOp, Any], consumers: Mapping[UOp, Mapping[UOp, Any]]) -> dict[UOp, str]:
        """Returns node -> line. What tinygrad put in itself has the line of its first consumer that has one, else that
        of its value; a STORE has that of its value first."""
        lines = {u: line for u in toposort if u.op.name not in _NO_LINE and (line := self.own_line(u)) is not None}
        self._take_from_values(lines, (u for u in toposort if u.op.name == "STORE"))
        self._take_from_consumers(lines, toposort, consumers)
        self._take_from_values(lines, toposort)
        # the target of an output's STORE has only it
        self._take_from_consumers(lines, toposort, consumers)
        return lines

    def _take_from_values(self, lines: dict[UOp, str], uops: Iterable[UOp]) -> None:
        for uop in uops:
            # a STORE has its value last
            line = next((lines[s] for s in reversed(uop.src) if s in lines), None)
            if line is not None:
                lines.setdefault(uop, line)

    def _take_from_consumers(
        self, lines: dict[UOp, str], toposort: Mapping[UOp, Any], consumers: Mapping[UOp, Mapping[UOp, Any]]
    ) -> None:
        for uop in reversed(list(toposort)):
            line = next((lines[c] for c in consumers.get(uop, ()) if c in lines), None)
            if line is not None and uop.op.name not in _NO_LINE:
                lines.setdefault(uop, line)


def _is_users_text(frame: FrameType) -> bool:
    """Code that was never a file is the user's where its module is; a compiled pattern of tinygrad has no module."""
    name = frame.f_globals.get("__name__", "tinygrad")
    return not name.startswith("tinygrad")


def _noted_caller(uop: UOp) -> str | None:
    """The caller in tinygrad's own note, which releases up to 0.13 keep under TRACEMETA=2."""
    notes = getattr(uop, "metadata", None) or ()
    return next((note.caller for note in notes if getattr(note, "caller", "")), None)
