"""Installs the overlay when Python starts, or observes its tinygrad, then runs the sitecustomize that this file hides.
`child_environment` puts this folder on PYTHONPATH: workers (pytest-xdist, BEAM search) get the same tinygrad."""

import os
import sys


def _set_up() -> None:
    package_root = os.path.abspath(os.path.join(__file__, *[os.pardir] * 4))
    # a worker may run with another sys.path: the overlay lies where this file lies
    sys.path.append(package_root)
    try:
        from vmapdbg.install.overlay import install
    finally:
        sys.path.pop()
    if "VMAPDBG_PATCHES" in os.environ:
        install()
    if "VMAPDBG_COLLECT" in os.environ:
        from vmapdbg.child.run_program import collect_from_this_process

        collect_from_this_process()


def _run_shadowed() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if "VMAPDBG_PATCHES" in os.environ or "VMAPDBG_COLLECT" in os.environ:
    _set_up()
_run_shadowed()
