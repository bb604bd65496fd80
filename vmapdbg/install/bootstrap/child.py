"""Runs a module of vmapdbg in an interpreter that does not have it: `python child.py MODULE ARGUMENT...`.

The interpreter of the user's project gets only this package, and no other package that is installed with it: a package
that the project lacks is still missing.
"""

import importlib.abc
import importlib.util
import os
import runpy
import sys

_PACKAGE = os.path.abspath(os.path.join(__file__, *[os.pardir] * 3))


class _PackageFinder(importlib.abc.MetaPathFinder):
    """Finds the package `vmapdbg`, which then finds its own modules."""

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname != "vmapdbg":
            return None
        file = os.path.join(_PACKAGE, "__init__.py")
        return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=[_PACKAGE])


def main() -> None:
    module = sys.argv.pop(1)
    sys.meta_path.insert(0, _PackageFinder())
    # as `python -m` has it
    sys.path[0] = os.getcwd()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
