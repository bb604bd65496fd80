"""Runs a module of vmapdbg: `python child.py MODULE ARGUMENT...`. The interpreter may be the user's project's, without
vmapdbg. It gets only this package: others that the project lacks stay missing. The working directory is not on the
path: a `json.py` there is the user's, and nothing imports it unasked."""

import importlib
import os
import runpy
import sys


def main() -> None:
    module = sys.argv.pop(1)
    # the package then finds its own modules
    sys.path[0] = os.path.abspath(os.path.join(__file__, *[os.pardir] * 4))
    importlib.import_module("vmapdbg")
    del sys.path[0]
    from vmapdbg.install.job import UNWRITTEN
    from vmapdbg.model.store import StoreError

    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except StoreError:
        sys.exit(UNWRITTEN)  # the tool says so


if __name__ == "__main__":
    main()
