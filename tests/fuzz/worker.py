"""The process that runs programs: patched tinygrad, one program after the other, until its parent ends it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from multiprocessing.connection import wait
from typing import Any

import numpy as np


def run(source: str, plain: bool) -> list[np.ndarray[Any, Any]]:
    """Runs a snippet, returns its results. `plain` is without the optimizations of codegen."""
    from tinygrad.helpers import Context

    source = source.rsplit("for result in results:", 1)[0]
    space: dict[str, Any] = {"__name__": "program"}
    with Context(NOOPT=int(plain)):
        exec(compile(source, "<program>", "exec"), space)
        return [r.numpy() for r in space["results"]]


def serve(connection: Any) -> None:
    """Takes (source, plain) and answers ("ok", arrays) or (the exception's name, its message and traceback)."""
    from vmapdbg.install.overlay import install
    from vmapdbg.install.patches import format_patches, parse_patches

    install(format_patches(parse_patches(os.environ.get("VMAPDBG_PATCHES", "all"))))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    threading.Thread(target=end_with_parent, daemon=True).start()
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            connection.send(("ok", run(*request)))
        except Exception as e:
            connection.send((type(e).__name__, (str(e), traceback.format_exc())))


def end_with_parent() -> None:
    """Ends this process when its parent is gone, however that ended: this process may run an endless program."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
