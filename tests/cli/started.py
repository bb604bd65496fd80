"""Runs `vmapdbg` many times, and imports it once: `python -P started.py NUMBER`, with the number of a socket.

To start Python and import the command line takes a quarter of a second of a run. Here a fork does each run, so a run
changes nothing for the next one. The socket gets the pipes for stdout and stderr, and a line with the run as JSON
(`CommandLine.run` in tool.py); the answer is a line with the exit status. Only the tool's own process starts this way:
the child that imports tinygrad is always a new process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import sys
from collections.abc import Sequence
from typing import Any

# the views load what draws a picture or compares values when they need it
PRELOADED = ("commands", "page.text", "lint", "diff", "bisect", "tune", "model")


def preload() -> None:
    """Imports what the commands import."""
    for name in PRELOADED:
        package = importlib.import_module(f"vmapdbg.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    # a fork copies no page for the sake of collecting garbage
    gc.freeze()


def serve(number: int) -> None:
    """Forks for each run, and waits for its end. Returns only in a fork; the process itself ends with the socket."""
    with socket.socket(fileno=number) as connection, connection.makefile("rw") as lines:
        while True:
            sent, pipes, *_ = socket.recv_fds(connection, 1, 2)
            if not sent:
                os._exit(0)
            run = json.loads(lines.readline())
            process = os.fork()
            if process == 0:
                set_up(run, pipes)
                return
            for pipe in pipes:
                os.close(pipe)
            lines.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
            lines.flush()


def set_up(run: dict[str, Any], pipes: Sequence[int]) -> None:
    """Makes this process what a new one for the run would be."""
    os.chdir(run["cwd"])
    os.environ.clear()
    os.environ.update(run["environment"])
    sys.argv[1:] = run["arguments"]
    if not run["has_stdin"]:
        # as Python does if it starts so
        sys.stdin = sys.__stdin__ = None
        os.close(0)
    for number, pipe in zip((1, 2), pipes, strict=True):
        os.dup2(pipe, number)
        os.close(pipe)


if __name__ == "__main__":
    preload()
    serve(int(sys.argv[1]))
    runpy.run_module("vmapdbg", run_name="__main__", alter_sys=True)
