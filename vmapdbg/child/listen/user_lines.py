"""The user's line of each UOp, and the method of Tensor called there: noted where the UOp is made, followed up to the
rangeify pass. A frame or file is the user's if it is not tinygrad's, the standard library's or vmapdbg's."""

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Any

from vmapdbg.child.listen.guard import leave_out, setting
from vmapdbg.child.listen.records import Origin, UOp
from vmapdbg.model.capture import Function
from vmapdbg.model.vocabulary import Phase

_INTERNAL: list[str] = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep]
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = os.path.join(_STDLIB, "site-packages") + os.sep
# a frame with this name is an import: what a module makes at that time belongs to no line
_IMPORT = "<frozen importlib._bootstrap>"

_ORIGIN = "_vmapdbg_origin"  # an attribute of UOps: tinygrad keeps what it computed in their __dict__, too
_NO_LINE = frozenset({"SINK", "CALL", "FUNCTION"})  # made of all outputs together, where the user asks for them
_SHARED = frozenset({"CONST", "VCONST", "DEVICE"})  # hash-consed: the line that first made one says nothing here
_INDEX_TYPES = ("index", "weakint")
# methods of Tensor that are not what makes a value
_NO_METHODS = {"__class__", "__del__", "__init__", "__new__", "__repr__", "backward", "gradient", "realize"}
_NO_METHODS |= {"linear_with_vars", "schedule", "schedule_linear", "schedule_with_vars", "sequential"}
_PHASES: dict[str, Phase] = {"Tensor.backward": "backward", "Tensor.gradient": "backward"}
_PHASES |= {"Optimizer.step": "optimizer", "Optimizer.schedule_step": "optimizer"}
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))  # no functions to a reader
_WORKING = os.path.join(os.getcwd(), "")  # the folder where the program was started, with a separator at the end


def name_function(qualified: str) -> str:
    """Returns the qualified name of a function without the marks of functions inside functions."""
    return qualified.replace("<locals>.", "")


def set_internal_folders(*folders: str) -> None:
    """Frames of files below these folders are not the user's."""
    _INTERNAL.extend(os.path.abspath(folder) + os.sep for folder in folders)
    find_user_file.cache_clear()


def make_absolute(filename: str) -> str:
    """Returns the path of a file from the root. The program may have left the working directory, or deleted it."""
    return os.path.normpath(os.path.join(_WORKING, filename))


@functools.cache
def find_user_file(filename: str) -> str | None:
    """Returns the name to show for a user's file, relative below the working directory, or None for other code."""
    if filename.startswith("<"):
        return None if filename.startswith("<frozen") else filename
    path = make_absolute(filename)
    if path.startswith(tuple(_INTERNAL)) or (path.startswith(_STDLIB) and not path.startswith(_INSTALLED)):
        return None
    return path.removeprefix(_WORKING)


def _user_file_of(frame: FrameType) -> str | None:
    """Returns the user's file of a frame. Code without a file counts by its module: a compiled pattern has none."""
    filename = frame.f_code.co_filename
    if filename[0] == "<" and frame.f_globals.get("__name__", "tinygrad").startswith("tinygrad"):
        return None
    return find_user_file(filename)


def find_user_line(frame: FrameType | None = None) -> str | None:
    """Returns `file:number` of the innermost frame of the user from `frame` or here; None if none, or in an import."""
    frame = frame or sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _IMPORT:
        file = _user_file_of(frame)
        if file is not None:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def find_noted(uop: UOp) -> Origin | None:
    """Returns the origin that was noted when a UOp was made; None for a UOp of several lines (a constant)."""
    return None if uop.op.name in _SHARED else uop.__dict__.get(_ORIGIN)


def replace_sources(uop: UOp, src: tuple[UOp, ...]) -> UOp:
    """Returns a UOp with other sources and the same origin."""
    made = uop.replace(src=src)
    if _ORIGIN in uop.__dict__:
        made.__dict__[_ORIGIN] = uop.__dict__[_ORIGIN]
    return made


class UserLines:
    """Notes and follows the origins of UOps."""

    def __init__(self) -> None:
        self.followed: dict[UOp, Origin] = {}  # UOp that a rewrite of this schedule made -> origin
        # the origin of a UOp that is made now: none while tinygrad is imported, which makes thousands
        self._find: Callable[[], Origin | None] = lambda: None
        self._methods: dict[str, str] = {}  # the methods of Tensor by the qualified names of their code
        self._creating: set[str] = set()  # methods that make values out of nothing
        # the user's functions that make UOps; a caller comes before what it calls
        self.functions: dict[Function, int] = {}
        # the index of the function by the codes on the stack, innermost first. It keeps them: an id stays theirs
        self._stacks: dict[tuple[int, ...], tuple[int, list[CodeType]]] = {}
        self._make = functools.cache(Origin)  # a few origins for thousands of UOps

    def begin(self) -> None:
        """tinygrad is imported: UOps from here on have an origin."""
        tensor = sys.modules["tinygrad.tensor"].Tensor
        # methods of classes, too
        for name, method in inspect.getmembers(tensor, lambda m: inspect.isfunction(m) or inspect.ismethod(m)):
            if name not in _NO_METHODS:
                code = inspect.unwrap(method).__code__
                self._methods[code.co_qualname] = name
                # tinygrad wraps static methods in plain functions; einsum alone is given Tensors
                is_static = code.co_varnames[:1] != ("self",)
                if (is_static or name.endswith("_like")) and name != "einsum":
                    self._creating.add(name)
        self._find = lambda: self.find_origin(sys._getframe(1))

    def find_origin(self, frame: FrameType | None) -> Origin | None:
        """Returns the user's line, function, phase and outermost method of Tensor; None if none, or in an import."""
        method, line = None, ""
        phase: Phase = "forward"
        codes: list[CodeType] = []
        while frame is not None and (code := frame.f_code).co_filename != _IMPORT:
            file = _user_file_of(frame)
            if file is None:
                phase = _PHASES.get(code.co_qualname, phase)
                if not line:
                    method = self._methods.get(code.co_qualname, method)
            else:
                line = line or f"{file}:{frame.f_lineno}"
                codes.append(code)
            frame = frame.f_back
        if not line:
            return None
        return self._make(line, method, self._find_function(codes), "data" if method in self._creating else phase)

    def _find_function(self, codes: list[CodeType]) -> int:
        """Returns the index of the function that is innermost on a stack."""
        key = tuple(map(id, codes))
        if key not in self._stacks:
            found = None
            for code in reversed(codes):
                if code.co_name not in _COMPREHENSIONS or found is None:
                    name = name_function(code.co_qualname)
                    function = Function(name, find_user_file(code.co_filename) or "", found)
                    found = self.functions.setdefault(function, len(self.functions))
            assert found is not None
            self._stacks[key] = found, codes
        return self._stacks[key][0]

    # *** UOps that are made

    def noting(self, make: Callable[..., UOp]) -> Callable[..., UOp]:
        """Returns `UOpMetaClass.__call__` that notes the origin of each UOp without one."""

        def noting(cls: Any, *args: Any, **kwargs: Any) -> UOp:
            made = make(cls, *args, **kwargs)
            try:
                attributes = made.__dict__
                if _ORIGIN not in attributes:
                    attributes[_ORIGIN] = self._find()
            except Exception as error:
                leave_out("user's lines", error)
            return made

        return noting

    def holding(self, origin: Origin | None) -> AbstractContextManager[None]:
        """Gives every UOp that is made meanwhile this origin; with None it takes the origin of its first consumer."""
        return setting(self, "_find", lambda: origin)

    def holding_gradient(self, rewrite: Callable[..., Any], uop: UOp, ctx: Any = None) -> Any:
        """Gives what tinygrad's rules for gradients make of a UOp its origin, not the line of `backward()`."""
        origin = self._origin_of(uop)
        with self.holding(origin and origin._replace(phase="backward")):
            return rewrite(uop, ctx)

    # *** UOps that replace others

    def follow(self, replaced: Mapping[UOp, UOp]) -> None:
        """Gives the replacement of each UOp its origin, and what a rewrite made for it below."""
        followed = self.followed
        made: list[tuple[UOp, Origin]] = []
        for old, new in replaced.items():
            if old is not new and new not in followed:
                origin = followed.get(old) or old.__dict__.get(_ORIGIN)
                if origin is not None and old.op.name not in _SHARED:
                    followed[new] = origin
                    made.append((new, origin))
        # after all replacements: what is below a replacement may be another replacement
        for new, origin in made:
            todo = list(new.src)
            while todo:
                uop = todo.pop()
                if uop not in followed and _ORIGIN not in uop.__dict__:
                    followed[uop] = origin
                    todo += uop.src

    def take_over(self, replaced: Mapping[UOp, UOp]) -> None:
        """Gives the replacement of each UOp its origin for good."""
        for old, new in replaced.items():
            origin = self.followed.get(old) or old.__dict__.get(_ORIGIN)
            if old is not new and origin is not None:
                new.__dict__[_ORIGIN] = origin

    def follow_tags(self, before: Iterable[UOp], after: Iterable[UOp]) -> None:
        """Gives a node of `after` the origin of the node of `before` with its tag: tinygrad 0.12 gives nodes tags."""
        by_tag = {tag: origin for uop in before if (origin := self._origin_of(uop)) for tag in uop.tag or ()}
        for uop in after:
            # a node in the place of two nodes has the tags of both
            origins = [by_tag[tag] for tag in uop.tag or () if tag in by_tag]
            if origins:
                self.followed[uop] = origins[0]

    # *** the graph of a schedule

    def _origin_of(self, uop: UOp) -> Origin | None:
        """Returns where a UOp was made; None for a UOp of several lines (a constant)."""
        if uop.op.name in _SHARED or str(uop.dtype).endswith(_INDEX_TYPES):
            return None
        return self.followed.get(uop) or uop.__dict__.get(_ORIGIN)

    def find_origins(self, toposort: Mapping[UOp, Any], consumers: Mapping[UOp, Iterable[UOp]]) -> dict[UOp, Origin]:
        """Maps each node to its origin. A node that tinygrad put in has the origin of its first consumer with one, else
        of its value; a STORE has the origin of its value first."""
        with_line = [u for u in toposort if u.op.name not in _NO_LINE]
        found = {u: origin for u in with_line if (origin := self._origin_of(u))}

        def take(uops: Iterable[UOp], from_values: bool) -> None:
            for uop in uops:
                others = reversed(uop.src) if from_values else consumers.get(uop, ())  # a STORE has its value last
                origin = next((found[other] for other in others if other in found), None)
                if origin is not None:
                    found.setdefault(uop, origin)

        take((u for u in toposort if u.op.name == "STORE"), from_values=True)
        take(reversed(with_line), from_values=False)
        take(toposort, from_values=True)
        take(reversed(with_line), from_values=False)  # the target of an output's STORE has only this consumer
        return found
