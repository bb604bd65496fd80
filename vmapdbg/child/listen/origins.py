"""The user's line of each UOp, and the method of Tensor that is called there: noted where the UOp is made, followed
through the rewrites before the rangeify pass."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from vmapdbg.child.listen.records import Origin, UOp
from vmapdbg.child.listen.user_lines import find_user_file, set_internal_folders

# the attribute that a UOp has its origin in; UOps have a __dict__, which tinygrad itself keeps what it computed in
_ORIGIN = "_vmapdbg_origin"
# what tinygrad makes of all outputs together, where the user asks for them
_NO_LINE = frozenset({"SINK", "CALL", "FUNCTION"})
# hash-consed: the line where such a UOp was made first says nothing about its use here
_SHARED = frozenset({"CONST", "VCONST", "DEVICE"})
_INDEX_TYPES = ("index", "weakint")
# a frame with this name is an import: what a module makes at that time belongs to no line
_IMPORT = "<frozen importlib._bootstrap>"
# methods of Tensor that tinygrad itself does not name as what made a value
_NO_METHODS = frozenset(
    ("__class__", "__del__", "__init__", "__new__", "__repr__", "backward", "sequential", "gradient")
)


class UserLines:
    """Tells the user's lines: files outside tinygrad, the standard library and vmapdbg are the user's."""

    def __init__(self, tinygrad_folder: str) -> None:
        set_internal_folders(tinygrad_folder)
        # UOps of the schedule being made -> origin, for what a rewrite made of a user's UOp
        self.followed: dict[UOp, Origin] = {}
        # the origin of a UOp that is made now: as long as tinygrad is imported it has none, and thousands are made
        self._find: Callable[[], Origin | None] = _find_none
        self._methods: dict[str, str] = {}

    def begin(self) -> None:
        """tinygrad is there: what is made from here on is somebody's."""
        self._find = self.find_origin

    def find_user_line(self) -> str | None:
        """Returns `file:number` of the innermost frame that is the user's; None without one, and while a module is
        imported."""
        origin = self.find_origin()
        return origin and origin.line

    def find_origin(self) -> Origin | None:
        """Returns that line, and of the methods of Tensor between it and here the outermost."""
        methods = self._methods or self._list_methods()
        method = None
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            filename = code.co_filename
            if filename == _IMPORT:
                return None
            file = find_user_file(filename)
            if file is not None and (filename[0] != "<" or _is_users_text(frame)):
                return _make_origin(file, frame.f_lineno, method)
            name = code.co_qualname
            if name in methods:
                method = methods[name]
            frame = frame.f_back
        return None

    def _list_methods(self) -> dict[str, str]:
        """The methods of Tensor by the name that their code has, once there is a Tensor."""
        tensor = getattr(sys.modules.get("tinygrad.tensor"), "Tensor", None)
        if tensor is not None:
            for name, method in inspect.getmembers(tensor, _is_method):
                if name not in _NO_METHODS:
                    self._methods[inspect.unwrap(method).__code__.co_qualname] = name
        return self._methods

    def noting(self, make: Callable[..., UOp]) -> Callable[..., UOp]:
        """Returns `UOpMetaClass.__call__` that notes its origin at each UOp that has none."""

        def noting(cls: Any, *args: Any, **kwargs: Any) -> UOp:
            made = make(cls, *args, **kwargs)
            attributes = made.__dict__
            if _ORIGIN not in attributes:
                attributes[_ORIGIN] = self._find()
            return made

        return noting

    @contextmanager
    def holding(self, origin: Origin | None) -> Iterator[None]:
        """Has every UOp that is made meanwhile get this origin; with None that of its first consumer."""
        before = self._find
        self._find = lambda: origin
        try:
            yield
        finally:
            self._find = before

    def holding_gradient(self, rewrite: Callable[..., Any], uop: UOp, ctx: Any = None) -> Any:
        """Has what tinygrad's rules for gradients make of a UOp get its origin, not that of `backward()`."""
        with self.holding(self._find_own(uop)):
            return rewrite(uop, ctx)

    def follow(self, replaced: Mapping[UOp, UOp]) -> None:
        """What a rewrite put in the place of a UOp has its origin, with what it made for that below it."""
        followed = self.followed
        made: list[tuple[UOp, Origin]] = []
        for old, new in replaced.items():
            if old is not new and new not in followed:
                origin = followed.get(old) or old.__dict__.get(_ORIGIN)
                if origin is not None and old.op.name not in _SHARED:
                    followed[new] = origin
                    made.append((new, origin))
        # when all that was replaced has its origin: what is below may be another one's
        for new, origin in made:
            self._spread(new, origin)

    def take_over(self, replaced: Mapping[UOp, UOp]) -> None:
        """What takes the place of a UOp for good has its origin."""
        for old, new in replaced.items():
            origin = self.followed.get(old) or old.__dict__.get(_ORIGIN)
            if old is not new and origin is not None:
                new.__dict__[_ORIGIN] = origin

    def follow_tags(self, before: Iterable[UOp], after: Iterable[UOp]) -> None:
        """tinygrad 0.12 gives nodes tags: a node of `after` has the origin of the node of `before` with its tag."""
        by_tag: dict[Any, Origin] = {}
        for uop in before:
            origin = self._find_own(uop)
            if origin is not None:
                by_tag.update(dict.fromkeys(uop.tag or (), origin))
        for uop in after:
            # a node that stands for two has the tags of both
            origin = next((by_tag[tag] for tag in uop.tag or () if tag in by_tag), None)
            if origin is not None:
                self.followed[uop] = origin

    def _spread(self, made: UOp, origin: Origin) -> None:
        todo = list(made.src)
        while todo:
            uop = todo.pop()
            if uop not in self.followed and _ORIGIN not in uop.__dict__:
                self.followed[uop] = origin
                todo += uop.src

    def _find_own(self, uop: UOp) -> Origin | None:
        """Where a UOp was made; None for one that is shared by all who ever ask for it (a constant)."""
        if uop.op.name in _SHARED or str(uop.dtype).endswith(_INDEX_TYPES):
            return None
        return self.followed.get(uop) or uop.__dict__.get(_ORIGIN) or _noted_caller(uop)

    def find_origins(
        self, toposort: Mapping[UOp, Any], consumers: Mapping[UOp, Mapping[UOp, Any]]
    ) -> dict[UOp, Origin]:
        """Returns node -> origin. What tinygrad put in itself has that of its first consumer that has one, else that
        of its value; a STORE has that of its value first."""
        found = {u: own for u in toposort if u.op.name not in _NO_LINE and (own := self._find_own(u)) is not None}
        self._take_from_values(found, (u for u in toposort if u.op.name == "STORE"))
        self._take_from_consumers(found, toposort, consumers)
        self._take_from_values(found, toposort)
        # the target of an output's STORE has only it
        self._take_from_consumers(found, toposort, consumers)
        return found

    def _take_from_values(self, found: dict[UOp, Origin], uops: Iterable[UOp]) -> None:
        for uop in uops:
            # a STORE has its value last
            origin = next((found[s] for s in reversed(uop.src) if s in found), None)
            if origin is not None:
                found.setdefault(uop, origin)

    def _take_from_consumers(
        self, found: dict[UOp, Origin], toposort: Mapping[UOp, Any], consumers: Mapping[UOp, Mapping[UOp, Any]]
    ) -> None:
        for uop in reversed(list(toposort)):
            origin = next((found[c] for c in consumers.get(uop, ()) if c in found), None)
            if origin is not None and uop.op.name not in _NO_LINE:
                found.setdefault(uop, origin)


def _find_none() -> None:
    return None


@functools.cache
def _make_origin(file: str, line: int, method: str | None) -> Origin:
    # a few for thousands of UOps
    return Origin(f"{file}:{line}", method)


def _is_method(member: object) -> bool:
    """Tells a method, of a class or of no object too, from what has no code in Python."""
    return inspect.isfunction(member) or inspect.ismethod(member)


def _is_users_text(frame: FrameType) -> bool:
    """Code that was never a file is the user's where its module is; a compiled pattern of tinygrad has no module."""
    name = frame.f_globals.get("__name__", "tinygrad")
    return not name.startswith("tinygrad")


def _noted_caller(uop: UOp) -> Origin | None:
    """The caller in tinygrad's own note, which releases up to 0.13 keep under TRACEMETA=2."""
    notes = getattr(uop, "metadata", None) or ()
    return next((Origin(note.caller, note.name) for note in notes if getattr(note, "caller", "")), None)
