"""Starts the comparison (`checker`) without standing in the snippet's way: started by `launcher` as `python -m
vmapdbg.child.compare.beside REQUEST`.

It starts when the process of the snippet does. What it imports, numpy above all, is imported with a lower priority.
"""

from __future__ import annotations

import importlib
import threading

from vmapdbg.child.compare.priority import lower_session, lower_thread, restore_session

_CHECKER = "vmapdbg.child.compare.checker"


def main() -> None:
    # a thread can have a priority of its own, and a process cannot get its own back
    importer = threading.Thread(target=_import_checker)
    importer.start()
    importer.join()
    # from here on it works for the snippet: on a machine that is busy it must not wait for all others
    restore_session()
    importlib.import_module(_CHECKER).main()


def _import_checker() -> None:
    lower_thread()
    lower_session()
    importlib.import_module(_CHECKER)


if __name__ == "__main__":
    main()
