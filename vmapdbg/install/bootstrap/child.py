"""Runs a module of vmapdbg in an interpreter that does not have it: `python child.py MODULE ARGUMENT...`.

The interpreter of the user's project gets only this package, and no other package that is installed with it: a package
that the project lacks is still missing.
"""

import importlib
import os
import runpy
import sys


def main() -> None:
    module = sys.argv.pop(1)
    # the package then finds its own modules
    sys.path[0] = os.path.abspath(os.path.join(__file__, *[os.pardir] * 4))
    importlib.import_module("vmapdbg")
    # as `python -m` has it
    sys.path[0] = os.getcwd()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
