"""Patches modules of tinygrad while they are imported.

A `PatchingFinder` in front of `sys.meta_path` lets the installed file run and then calls a function on the module,
before the importer sees it: a later `from tinygrad.x import name` gets the patched name. Each process with the overlay
imports this module at its start, so it imports little.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Patch = Callable[[types.ModuleType], None]


class OverlayError(ImportError):
    """tinygrad cannot be patched; the message is one line for the user."""


class PatchingLoader(importlib.abc.Loader):
    """Runs the installed module, then `patch` on it, before the importer sees it."""

    def __init__(self, loader: importlib.abc.Loader, patch: Patch):
        self.loader, self.patch = loader, patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self.loader.exec_module(module)
        try:
            self.patch(module)
        except ImportError as error:
            # UnknownShape: a thing is not what the patch knows; else a name that it imports from tinygrad is not there
            raise OverlayError(str(error)) from None

    # inspect and runpy ask a loader for more than importing it takes: get_source, get_code, is_package
    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)


class PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds tinygrad modules as the other finders do, and has those that are named in `patches` patched.

    `before_import` is called with the spec of tinygrad each time it is about to be imported; it may refuse it.
    `new_modules` has the file of each module that tinygrad gets besides its own.
    """

    def __init__(
        self,
        patches: Mapping[str, Patch],
        before_import: Callable[[importlib.machinery.ModuleSpec], None],
        new_modules: Mapping[str, Path] | None = None,
    ):
        self.patches, self.before_import, self.new_modules = patches, before_import, new_modules or {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.new_modules:
            return importlib.util.spec_from_file_location(fullname, self.new_modules[fullname])
        if fullname != "tinygrad" and fullname not in self.patches:
            return None
        spec = self._find_installed(fullname, path, target)
        if spec is None:
            return None
        if fullname == "tinygrad":
            self.before_import(spec)
            return spec
        assert spec.loader is not None, f"{fullname} has no loader"
        spec.loader = PatchingLoader(spec.loader, self.patches[fullname])
        return spec

    def _find_installed(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None
