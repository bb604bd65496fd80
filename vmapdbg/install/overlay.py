"""Installs the overlay: patches the installed tinygrad 0.12.0 while it is imported, module by module.

When a module that the overlay changes is imported, `patch(module)` of the overlay file of the same name is called (see
`import_hook`). The overlay files are loaded as `tinygrad_overlay.*`, so they never hide the installed package. Their
module `tinygrad_overlay._patching` makes the changes; it works without the overlay, too: `load_patching`.

The state of the patches is read once from `VMAPDBG_PATCHES`. `child_environment` makes a Python process install
the overlay at its start (its workers too), through the `sitecustomize` in `vmapdbg/install/bootstrap`.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from vmapdbg.install.import_hook import OverlayError, tinygrad_finder
from vmapdbg.install.observer import Observer

TINYGRAD_VERSION = "0.12.0"
TINYGRAD_SOURCE = "84f45328b85930e3e9c1ddfee98e7d4553006344b77bc458f779f2628ce7e9d2"
"""What `vmapdbg.install.trees.hash_source` says of that release."""
PATCHES_VARIABLE = "VMAPDBG_PATCHES"
OBSERVE_VARIABLE = "VMAPDBG_OBSERVE"
BOOTSTRAP_DIR = Path(__file__).parent / "bootstrap"
OVERLAY_PACKAGE = "tinygrad_overlay"
_STATE = f"{OVERLAY_PACKAGE}._state"
_PATCHING = f"{OVERLAY_PACKAGE}._patching"
# overlay files that are new modules of tinygrad
_NEW_MODULES = {"tinygrad.func": "func.py"}


def overlay_dir() -> Path:
    """Returns the folder of the overlay: packed inside this package in a wheel, beside it in a checkout."""
    packed = Path(__file__).parents[1] / "_overlay"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "tinygrad"


def patched_modules(folder: Path) -> dict[str, str]:
    """Returns tinygrad module name -> overlay module name, for each overlay file that patches an upstream module.

    It has the name of that module. Files and folders whose name begins with an underscore are parts of the overlay.
    """
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
    editable = None if folder.exists() else find_editable()
    return folder if editable is None else editable / "tinygrad"


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
    load_patching()
    importlib.import_module(_STATE).start(chosen, Observer())
    folder = overlay_dir()
    finder = tinygrad_finder()
    finder.patches = {name: partial(_apply_overlay, changed) for name, changed in patched_modules(folder).items()}
    finder.before_import = _prepare_import
    finder.new_modules = {name: folder / file for name, file in _NEW_MODULES.items()}


def _apply_overlay(overlay_name: str, module: types.ModuleType) -> None:
    # a second import of the same module (after a del sys.modules[...]) needs an overlay bound to the new one
    sys.modules.pop(overlay_name, None)
    importlib.import_module(overlay_name).patch(module)


def _prepare_import(spec: ModuleSpec) -> None:
    """Raises OverlayError unless `spec` is the installed tinygrad, and it is the right release."""
    check_installed()
    installed = installed_folder() / "__init__.py"
    # no origin: a folder without an __init__.py, such as the overlay itself
    found = None if spec.origin is None else Path(spec.origin)
    if found is None or not found.exists() or not installed.exists() or not found.samefile(installed):
        raise OverlayError(f"tinygrad would be imported from {spec.origin}, not from the installed {installed}")
    # tinygrad imported again (after a del sys.modules[...]) has new classes: nothing may hold the old classes
    kept = {_STATE, _PATCHING}
    for name in [name for name in sys.modules if name.startswith(f"{OVERLAY_PACKAGE}.") and name not in kept]:
        del sys.modules[name]


def is_installed() -> bool:
    """Tells whether the overlay is installed in this process."""
    # not by the package, which load_patching makes for stock tinygrad
    return _STATE in sys.modules


def get_state() -> Any:
    """Returns the state of the installed overlay: which patches are on, who observes."""
    return sys.modules[_STATE]


def child_environment(
    patches: str | None, environment: dict[str, str], tree: str = "", observes: bool = False
) -> dict[str, str]:
    """Returns `environment` changed so that a Python process started with it, and each Python process that it
    starts, installs the overlay with `patches`; None takes the overlay out of an environment. `tree` is the folder of
    the tinygrad that they import, empty for the installed tinygrad. With `observes` they observe it instead; other
    variables say what for (`bootstrap/sitecustomize.py`)."""
    ours = (PATCHES_VARIABLE, OBSERVE_VARIABLE, "PYTHONPATH")
    changed = {name: value for name, value in environment.items() if name not in ours}
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    entries = [entry for entry in entries if Path(entry) != BOOTSTRAP_DIR]
    if patches is not None or observes:
        # Python imports the first sitecustomize that it finds; ours imports the next one
        entries.insert(0, str(BOOTSTRAP_DIR))
    if patches is not None:
        changed[PATCHES_VARIABLE] = patches
    elif observes:
        changed[OBSERVE_VARIABLE] = "1"
    if tree:
        entries.insert(0, tree)
    if entries:
        changed["PYTHONPATH"] = os.pathsep.join(entries)
    return changed
