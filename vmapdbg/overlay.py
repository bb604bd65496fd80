"""Installs the overlay: patches the installed tinygrad 0.12.0 while it is imported, module by module.

`install` puts one finder in front of `sys.meta_path`. When a module that the overlay changes is imported, the
finder lets the installed file run and then calls `patch(module)` of the overlay file of the same name, before the
importer sees the module: a later `from tinygrad.x import name` gets the patched name. The overlay files are
loaded as `tinygrad_overlay.*`, so they never stand in the way of the installed package.

The state of the patches is read once from `VMAPDBG_PATCHES`. `child_environment` makes a Python process install
the overlay at its start (its workers too), through the `sitecustomize` in `vmapdbg/bootstrap`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vmapdbg.child.record.observer import Observer

TINYGRAD_VERSION = "0.12.0"
PATCHES_VARIABLE = "VMAPDBG_PATCHES"
BOOTSTRAP_DIR = Path(__file__).parent / "bootstrap"
OVERLAY_PACKAGE = "tinygrad_overlay"
# the overlay files that are modules of their own: tinygrad has none of that name
NEW_MODULES = {"tinygrad.func"}


class OverlayError(ImportError):
    """The overlay cannot be installed; the message is one line for the user."""


def overlay_dir() -> Path:
    """Returns the folder of the overlay: packed inside this package in a wheel, beside it in a checkout."""
    packed = Path(__file__).parent / "_overlay"
    return packed if packed.is_dir() else Path(__file__).parent.parent / "tinygrad"


def patched_modules(folder: Path) -> dict[str, str]:
    """Returns tinygrad module name -> overlay module name, for each overlay file that patches one.

    An overlay file patches the upstream module that has its name; one that upstream has no counterpart for (its
    folder marks it by an underscore) is a part of the overlay itself.
    """
    modules = {}
    for file in sorted(folder.rglob("*.py")):
        parts = list(file.relative_to(folder).with_suffix("").parts)
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        if parts[-1] == "__init__":
            parts.pop()
        name = ".".join(parts)
        modules[f"tinygrad.{name}"] = f"{OVERLAY_PACKAGE}.{name}"
    return {name: overlay_name for name, overlay_name in modules.items() if name not in NEW_MODULES}


Patch = Callable[[types.ModuleType], None]


class PatchingLoader(importlib.abc.Loader):
    """Runs the installed module, then `patch` on it, before the importer sees it."""

    def __init__(self, loader: importlib.abc.Loader, patch: Patch):
        self.loader, self.patch = loader, patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self.loader.exec_module(module)
        self.patch(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)


class PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds tinygrad modules as the other finders do, and has those that are named patched."""

    def __init__(self, patches: dict[str, Patch]):
        self.patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in NEW_MODULES:
            file = overlay_dir() / f"{fullname.removeprefix('tinygrad.').replace('.', '/')}.py"
            return importlib.util.spec_from_file_location(fullname, file)
        if fullname != "tinygrad" and fullname not in self.patches:
            return None
        spec = self._find_installed(fullname, path, target)
        if spec is None:
            return None
        if fullname == "tinygrad":
            _check_found(spec)
            _forget_overlay_modules()
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


def check_installed() -> None:
    """Raises OverlayError unless the installed tinygrad is the release that the overlay patches."""
    # it costs more than the rest of this module, and each Python process with the overlay imports this module
    import importlib.metadata

    try:
        found = importlib.metadata.version("tinygrad")
    except importlib.metadata.PackageNotFoundError:
        raise OverlayError(f"tinygrad is not installed ({_HOW_TO_INSTALL})") from None
    if found != TINYGRAD_VERSION:
        raise OverlayError(f"tinygrad {found} is installed, but vmapdbg patches {TINYGRAD_VERSION} ({_HOW_TO_INSTALL})")


_HOW_TO_INSTALL = f"pip install tinygrad=={TINYGRAD_VERSION}"


def installed_folder() -> Path:
    """Returns the folder of the installed tinygrad."""
    import importlib.metadata

    return Path(str(importlib.metadata.distribution("tinygrad").locate_file("tinygrad")))


def _check_found(spec: importlib.machinery.ModuleSpec) -> None:
    check_installed()
    installed = installed_folder() / "__init__.py"
    # no origin: a folder without an __init__.py, such as that of the overlay itself
    if spec.origin is None or not _same_file(Path(spec.origin), installed):
        raise OverlayError(f"tinygrad would be imported from {spec.origin}, not from the installed {installed}")


def _forget_overlay_modules() -> None:
    # tinygrad imported again (after a del sys.modules[...]) is made of new classes: nothing may hold the old ones
    kept = {f"{OVERLAY_PACKAGE}._state", f"{OVERLAY_PACKAGE}._patching"}
    for name in [name for name in sys.modules if name.startswith(f"{OVERLAY_PACKAGE}.") and name not in kept]:
        del sys.modules[name]


def _same_file(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and left.samefile(right)


def apply_overlay(overlay_name: str, module: types.ModuleType) -> None:
    """Patches `module` by its overlay file. Raises OverlayError when the module is not what the file knows."""
    # a second import of the same module (after a del sys.modules[...]) needs an overlay bound to the new one
    sys.modules.pop(overlay_name, None)
    try:
        importlib.import_module(overlay_name).patch(module)
    except sys.modules[f"{OVERLAY_PACKAGE}._patching"].UnknownShape as unknown:  # type: ignore[attr-defined]
        raise OverlayError(str(unknown)) from None


def install(patches: str | None = None) -> None:
    """Installs the overlay in this process. `patches` is the comma separated list of the switchable patches that
    are on (default: the environment variable).

    Calling it again with the same patches does nothing. Raises OverlayError when tinygrad is imported already, or
    when the overlay is installed with other patches.
    """
    chosen = os.environ.get(PATCHES_VARIABLE, "") if patches is None else patches
    if is_installed():
        installed = get_state().patches_spec
        if installed != chosen:
            raise OverlayError(f"the overlay is installed already, with the patches {installed or 'none'!r}")
        return
    if "tinygrad" in sys.modules:
        raise OverlayError("tinygrad is imported already: the overlay must be installed before it")
    folder = overlay_dir()
    package = types.ModuleType(OVERLAY_PACKAGE, "The overlay on tinygrad, see tinygrad/README.md.")
    package.__path__ = [str(folder)]
    sys.modules[OVERLAY_PACKAGE] = package
    importlib.import_module(f"{OVERLAY_PACKAGE}._patching")
    importlib.import_module(f"{OVERLAY_PACKAGE}._state").start(chosen, Observer())
    names = patched_modules(folder)
    sys.meta_path.insert(0, PatchingFinder({name: partial(apply_overlay, names[name]) for name in names}))


def get_state() -> Any:
    """Returns the state of the installed overlay: which patches are on, who observes."""
    return sys.modules[f"{OVERLAY_PACKAGE}._state"]


def is_installed() -> bool:
    """Tells whether the overlay is installed in this process."""
    return OVERLAY_PACKAGE in sys.modules


def child_environment(patches: str | None, environment: dict[str, str]) -> dict[str, str]:
    """Returns `environment` changed so that a Python process started with it, and each Python process that it
    starts, installs the overlay with `patches`; None takes the overlay out of an environment."""
    changed = dict(environment)
    entries = [entry for entry in changed.get("PYTHONPATH", "").split(os.pathsep) if entry]
    entries = [entry for entry in entries if Path(entry) != BOOTSTRAP_DIR]
    changed.pop(PATCHES_VARIABLE, None)
    if patches is not None:
        entries.insert(0, str(BOOTSTRAP_DIR))
        changed[PATCHES_VARIABLE] = patches
    changed.pop("PYTHONPATH", None)
    if entries:
        changed["PYTHONPATH"] = os.pathsep.join(entries)
    return changed
