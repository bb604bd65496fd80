"""Runs the graph of a failed schedule without any patch, in a process of its own: do only the patches make it fail?
stdin is a pickled (pickled PackedGraph, contents of its buffers, switches, target), the exit code the answer."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from vmapdbg.child.evidence.evidence import PackedGraph
from vmapdbg.child.failures.endless import Watcher
from vmapdbg.child.listen.rendering import make_renderer
from vmapdbg.child.memory import make_buffer, read_switches
from vmapdbg.install import overlay

_PATIENCE = 60.0  # seconds that stock tinygrad may take for the graph
_SWITCH_IS_MISSING = 75
"""The exit code if the graph was not tried: stock tinygrad does not have a switch of the snippet."""
_DEVICES: dict[Any, Any] = {"NPY": "PYTHON"}
"""Arrays of numpy are read-only, and their device runs no kernels: this device is used in its place."""


def runs_on_stock(
    graph: bytes,
    contents: Mapping[str, bytes],
    switches: Mapping[str, int | str],
    environment: Mapping[str, str],
    target: str,
) -> bool | None:
    """Whether stock tinygrad computes a pickled PackedGraph; None: not tried. Empty `environment`: this process's."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=pickle.dumps((graph, contents, switches, target)),
            env=overlay.child_environment(None, dict(environment or os.environ)),  # the snippet's has the patches
            capture_output=True,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return False
    return None if done.returncode == _SWITCH_IS_MISSING else done.returncode == 0


def main() -> None:
    graph, contents, switches, target = pickle.load(sys.stdin.buffer)
    overlay.install("")
    overlay.get_state().find_renderer = partial(make_renderer, target)
    from tinygrad.helpers import Context
    from tinygrad.tensor import Tensor

    here = read_switches()
    if not switches.keys() <= here.keys():
        sys.exit(_SWITCH_IS_MISSING)
    Watcher().start()
    with Context(**{name: value for name, value in switches.items() if value != here[name]}):
        first, *others = [Tensor(u, device=u.device) for u in build_graph(pickle.loads(graph), contents)]
        first.realize(*others)


def build_graph(graph: PackedGraph, contents: Mapping[str, bytes]) -> list[Any]:
    """Returns the roots of a packed graph as UOps, its buffers with their contents."""
    from tinygrad.uop import Ops
    from tinygrad.uop.ops import UOp

    built: list[Any] = []
    for slot, (op, dtype, src, arg) in enumerate(graph.nodes):
        if op == "BUFFER":
            data = contents.get(graph.blobs.get(slot, ""), b"")
            device, size = arg
            built.append(make_buffer(_DEVICES.get(device, device), size, dtype, data))
            continue
        if op == "DEVICE":
            arg = _DEVICES.get(arg, arg)
        built.append(UOp(Ops[op], dtype, tuple(built[s] for s in src), arg))
    return [built[root] for root in graph.roots]


if __name__ == "__main__":
    main()
