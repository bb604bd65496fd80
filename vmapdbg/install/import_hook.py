"""Changes modules of tinygrad while they are imported: patches them, or has them listened to, or both.

One `TinygradFinder` in front of `sys.meta_path` lets the installed file run, then calls the patch of the module, then
its listener, before the importer sees it: a later `from tinygrad.x import name` gets the changed name. Each process
with the overlay imports this module at its start, so it imports little.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

Patch = Callable[[types.ModuleType], None]


class OverlayError(ImportError):
    """tinygrad cannot be patched; the message is one line for the user."""


class Listener(Protocol):
    """Looks at modules of tinygrad and of the overlay as they are imported."""

    def wants(self, name: str) -> bool:
        """Whether the listener looks at a module of this name."""
        ...

    def compile(self, module: types.ModuleType, loader: importlib.abc.Loader) -> types.CodeType | None:
        """Returns the code to run in place of the module's own; None for its own."""
        ...

    def ready(self, module: types.ModuleType) -> None:
        """The module ran and is patched; no importer sees it yet."""
        ...


class TinygradFinder(importlib.abc.MetaPathFinder):
    """Finds modules of tinygrad as the other finders do, and changes modules with a patch or a listener.

    `before_import` is called with the spec of tinygrad each time it is about to be imported; it may raise OverlayError.
    `new_modules` has the file of each module that tinygrad gets besides its own.
    """

    def __init__(self) -> None:
        self.patches: Mapping[str, Patch] = {}
        self.before_import: Callable[[importlib.machinery.ModuleSpec], None] = lambda spec: None
        self.new_modules: Mapping[str, Path] = {}
        self.listener: Listener | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.new_modules:
            return importlib.util.spec_from_file_location(fullname, self.new_modules[fullname])
        listener = self.listener
        if listener is not None and not listener.wants(fullname):
            listener = None
        if fullname != "tinygrad" and fullname not in self.patches and listener is None:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and fullname == "tinygrad":
            self.before_import(spec)
        # a folder without code has no loader
        elif spec is not None and spec.loader is not None:
            spec.loader = _ChangingLoader(spec.loader, self.patches.get(fullname), listener)
        return spec


class _ChangingLoader(importlib.abc.Loader):
    """Runs the installed module, then its patch, then calls the listener, before the importer sees it."""

    def __init__(self, loader: importlib.abc.Loader, patch: Patch | None, listener: Listener | None):
        self.loader, self.patch, self.listener = loader, patch, listener

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        code = None if self.listener is None else self.listener.compile(module, self.loader)
        if code is None:
            self.loader.exec_module(module)
        else:
            exec(code, module.__dict__)
        if self.patch is not None:
            try:
                self.patch(module)
            except ImportError as error:
                # UnknownShape: a name is not what the patch knows; else a name that it imports from tinygrad is missing
                raise OverlayError(str(error)) from None
        if self.listener is not None:
            self.listener.ready(module)

    # inspect and runpy ask a loader for more than importing it takes: get_source, get_code, is_package
    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)


def tinygrad_finder() -> TinygradFinder:
    """Returns the one finder of this process, in front of the finders that would load the installed files as they
    are."""
    for finder in sys.meta_path:
        if isinstance(finder, TinygradFinder):
            return finder
    finder = TinygradFinder()
    sys.meta_path.insert(0, finder)
    return finder
