"""Installs the overlay: patches the installed tinygrad 0.12.0 while it is imported, module by module. One
`TinygradFinder` in front of `sys.meta_path` lets the installed file run, then calls the patch of the module, then its
listener: a later `from tinygrad.x import name` gets the changed name. The patch is `patch(module)` of the overlay file
of the same name, loaded as `tinygrad_overlay.*`, so it never hides the installed package. `tinygrad_overlay._patching`
makes the changes; it works without the overlay, too: `load_patching`. `VMAPDBG_PATCHES` is read once.
`child_environment` makes a Python process and its workers install the overlay at their start, by the `sitecustomize` in
`install/bootstrap`: they all import this module, so it imports little."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

Patch = Callable[[types.ModuleType], None]

TINYGRAD_VERSION = "0.12.0"
PATCHES_VARIABLE = "VMAPDBG_PATCHES"
BOOTSTRAP_DIR = Path(__file__).parent / "bootstrap"
OVERLAY_PACKAGE = "tinygrad_overlay"
_STATE, _PATCHING = f"{OVERLAY_PACKAGE}._state", f"{OVERLAY_PACKAGE}._patching"
_NEW_MODULES = {"tinygrad.func": "func.py"}  # overlay files that are new modules of tinygrad


class OverlayError(ImportError):
    """tinygrad cannot be patched; the message is one line for the user."""


class TinygradFinder(importlib.abc.MetaPathFinder):
    """Finds modules of tinygrad as other finders do, and changes modules with a patch or a listener. `before_import`
    gets the spec before each import of tinygrad; it may raise OverlayError. `new_modules` has the files of modules that
    tinygrad gets. `listener` looks at modules while they are imported (`child.listen.hooks`), None if nothing does."""

    def __init__(self) -> None:
        self.patches: Mapping[str, Patch] = {}
        self.before_import: Callable[[importlib.machinery.ModuleSpec], None] = lambda spec: None
        self.new_modules: Mapping[str, Path] = {}
        self.listener: Any = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.new_modules:
            return importlib.util.spec_from_file_location(fullname, self.new_modules[fullname])
        listener = self.listener if self.listener is not None and self.listener.wants(fullname) else None
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

    def __init__(self, loader: importlib.abc.Loader, patch: Patch | None, listener: Any):
        self.loader, self.patch, self.listener = loader, patch, listener

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        code = self.listener.compile(module, self.loader) if self.listener is not None else None
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
    """Returns the one finder of this process; it is in front of all other finders."""
    known = next((finder for finder in sys.meta_path if isinstance(finder, TinygradFinder)), None)
    if known is None:
        sys.meta_path.insert(0, known := TinygradFinder())
    return known


def overlay_dir() -> Path:
    """Returns the folder of the overlay: packed inside this package in a wheel, next to it in a checkout."""
    packed = Path(__file__).parents[1] / "_overlay"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "tinygrad"


def patched_modules(folder: Path) -> dict[str, str]:
    """Maps the modules that overlay files patch to the modules of these files; `_name` files and folders patch none."""
    modules: dict[str, str] = {}
    for file in sorted(folder.rglob("*.py")):
        parts = list(file.relative_to(folder).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        name = ".".join(parts)
        if f"tinygrad.{name}" not in _NEW_MODULES and not any(part.startswith("_") for part in parts):
            modules[f"tinygrad.{name}"] = f"{OVERLAY_PACKAGE}.{name}"
    return modules


def check_installed() -> None:
    """Raises OverlayError unless the installed tinygrad is the release that the overlay patches."""
    # it costs more than the rest of this module, and each Python process with the overlay imports this module
    import importlib.metadata

    how_to_install = f"pip install tinygrad=={TINYGRAD_VERSION}"
    try:
        found = importlib.metadata.version("tinygrad")
    except importlib.metadata.PackageNotFoundError:
        raise OverlayError(f"tinygrad is not installed ({how_to_install})") from None
    if found != TINYGRAD_VERSION:
        raise OverlayError(f"tinygrad {found} is installed, but vmapdbg patches {TINYGRAD_VERSION} ({how_to_install})")


def installed_folder() -> Path:
    """Returns the folder of the installed tinygrad."""
    import importlib.metadata

    folder = Path(str(importlib.metadata.distribution("tinygrad").locate_file("tinygrad")))
    if not folder.exists() and (editable := find_editable()) is not None:
        return editable / "tinygrad"
    return folder


def find_editable() -> Path | None:
    """Returns the checkout that tinygrad is installed from (`pip install -e`), None if it is not."""
    import importlib.metadata
    import json
    from urllib.parse import unquote, urlsplit

    for distribution in importlib.metadata.distributions(name="tinygrad"):
        try:
            found = json.loads(distribution.read_text("direct_url.json") or "{}")
        except ValueError:
            continue
        if found.get("dir_info", {}).get("editable") and found["url"].startswith("file:"):
            return Path(unquote(urlsplit(str(found["url"])).path)).resolve()
    return None


def load_patching() -> Any:
    """Returns the module that changes tinygrad (`Changes`), with or without the overlay in this process."""
    if OVERLAY_PACKAGE not in sys.modules:
        package = types.ModuleType(OVERLAY_PACKAGE, "The overlay on tinygrad, see tinygrad/README.md.")
        package.__path__ = [str(overlay_dir())]
        sys.modules[OVERLAY_PACKAGE] = package
    return importlib.import_module(_PATCHING)


def install(patches: str | None = None) -> None:
    """Installs the overlay with these switchable patches (comma separated; default: the environment variable); a second
    time it does nothing. Raises OverlayError if tinygrad is imported already, or if other patches are installed."""
    chosen = os.environ.get(PATCHES_VARIABLE, "") if patches is None else patches
    if is_installed():
        if (installed := get_state().patches_spec) != chosen:
            raise OverlayError(f"the overlay is installed already, with the patches {installed or 'none'!r}")
        return
    if "tinygrad" in sys.modules:
        raise OverlayError("tinygrad is imported already: the overlay must be installed before it")
    load_patching()
    importlib.import_module(_STATE).start(chosen)
    folder = overlay_dir()
    finder = tinygrad_finder()
    finder.patches = {name: partial(_apply_overlay, changed) for name, changed in patched_modules(folder).items()}
    finder.before_import = _prepare_import
    finder.new_modules = {name: folder / file for name, file in _NEW_MODULES.items()}


def _apply_overlay(overlay_name: str, module: types.ModuleType) -> None:
    # a second import of the same module (after a del sys.modules[...]) needs an overlay bound to the new one
    sys.modules.pop(overlay_name, None)
    importlib.import_module(overlay_name).patch(module)


def _prepare_import(spec: importlib.machinery.ModuleSpec) -> None:
    """Raises OverlayError unless `spec` is the installed tinygrad, and it is the right release."""
    check_installed()
    installed = installed_folder() / "__init__.py"
    # no origin: a folder without an __init__.py, such as the overlay itself
    found = Path(spec.origin or "")
    if not found.is_file() or not installed.exists() or not found.samefile(installed):
        raise OverlayError(f"tinygrad would be imported from {spec.origin}, not from the installed {installed}")
    # tinygrad imported again (after a del sys.modules[...]) has new classes: nothing may hold the old classes
    kept = {_STATE, _PATCHING}
    for name in [name for name in sys.modules if name.startswith(f"{OVERLAY_PACKAGE}.") and name not in kept]:
        del sys.modules[name]


def is_installed() -> bool:
    """Returns whether the overlay is installed in this process."""
    return _STATE in sys.modules  # not by the package, which load_patching makes for stock tinygrad


def get_state() -> Any:
    """Returns the state of the installed overlay: which patches are on, who observes."""
    return sys.modules[_STATE]


def child_environment(
    patches: str | None, environment: dict[str, str], tree: str = "", observes: bool = False
) -> dict[str, str]:
    """Returns `environment` changed so that Python processes started with it, and their own, install the overlay with
    `patches` (None: no overlay) or, with `observes`, observe the tinygrad in folder `tree` (empty: installed)."""
    import shutil  # most processes that import this module start no other

    ours = (PATCHES_VARIABLE, "PYTHONPATH")
    changed = {name: value for name, value in environment.items() if name not in ours}
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    entries = [entry for entry in given if entry and Path(entry) != BOOTSTRAP_DIR]
    if patches is not None or observes:
        # Python imports the first sitecustomize that it finds; ours imports the next one
        entries.insert(0, str(BOOTSTRAP_DIR))
    if patches is not None:
        changed[PATCHES_VARIABLE] = patches
    if tree:
        entries.insert(0, tree)
    if entries:
        changed["PYTHONPATH"] = os.pathsep.join(entries)
    beside = Path(sys.executable).parent
    if shutil.which("clang", path=environment.get("PATH")) is None and (beside / "clang").exists():
        # an editor or a hook calls the tool by its path, and nothing has activated its venv
        changed["PATH"] = os.pathsep.join(filter(None, [environment.get("PATH"), str(beside)]))
    return changed
