"""Runs graphs one after the other and reports the outcome of each: the worker of `bisect --reduce`. Runs in a child.

A Worker starts it as `python -m vmapdbg.child.reduce.trial PATCHES TARGET`. It reads pickled (pickled PackedGraph,
contents of its buffers, switches of tinygrad) from stdin and writes a pickled Trial to stdout for each. With a third
argument, `lint`, kernels are linted and do not run.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from vmapdbg.child.evidence.graphs import PackedGraph
from vmapdbg.child.failures.diagnose import KnownNodes, diagnose
from vmapdbg.child.failures.endless import EndlessRewrite, Watcher
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.rendering import make_renderer
from vmapdbg.child.listen.values_and_times import read_output
from vmapdbg.child.live import build_live_capture, listen
from vmapdbg.child.memory import find_changed, make_buffer
from vmapdbg.child.reduce.worker import RUNS, GraphTrial, read_frame, write_frame
from vmapdbg.install import overlay
from vmapdbg.model.wording import first_line

_PERIOD = 0.05
"""Seconds between two checks for a rewrite that never ends: many of the graphs have one."""
_DEVICES: dict[Any, Any] = {"NPY": "PYTHON"}
"""Arrays of numpy are read-only, and their device runs no kernels: this device is used in its place."""


def main() -> None:
    patches, target, *lints = sys.argv[1:]
    overlay.install(patches)
    lint = None
    if lints:
        recorder = Recorder()
        listen(recorder)
        lint = functools.partial(lint_recorded, recorder, target)
    from tinygrad.helpers import Context

    # the fusion patches decide by the target
    overlay.get_state().find_renderer = functools.partial(make_renderer, target)
    Watcher(lambda text: None, period=_PERIOD).start()
    # stdout is for answers only
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while (asked := read_frame(sys.stdin.buffer)) is not None:
        graph, contents, switches = pickle.loads(asked)
        with Context(**find_changed(switches)):
            trial = try_graph(pickle.loads(graph), contents, lint)
        write_frame(answers, pickle.dumps(trial))


def lint_recorded(recorder: Recorder, target: str) -> tuple[str, ...]:
    """Returns the codes of the findings in the schedules since the last call."""
    from vmapdbg.lint import lint_capture

    records = recorder.schedules
    recorder.forget()
    findings = lint_capture(build_live_capture(records, target))
    return tuple(sorted({finding.code for finding in findings}))


def try_graph(
    graph: PackedGraph, contents: dict[str, bytes], lint: Callable[[], tuple[str, ...]] | None = None
) -> GraphTrial:
    """Schedules the roots of a graph, together, and runs them, or lints what was scheduled."""
    from tinygrad.tensor import Tensor

    try:
        uops = build_graph(graph, contents)
        tensors = [Tensor(u, device=u.device) for u in uops]
        items, variables = tensors[0].schedule_with_vars(*tensors[1:])
        keys = tuple(item.ast.key.hex() for item in items)
        if lint is not None:
            return GraphTrial(RUNS, keys, (), lint())
        from tinygrad.engine.realize import run_schedule

        run_schedule(items, variables)
        sizes = tuple(tensor.uop.base.size for tensor in tensors)
        return GraphTrial(RUNS, keys, tuple(map(read_output, tensors)), sizes=sizes)
    except (Exception, EndlessRewrite) as error:  # any error of the scheduler is an outcome
        return GraphTrial(f"{type(error).__name__}: {first_line(error)}", (), (), raised_at=place_of(error))


def place_of(error: BaseException) -> tuple[str | None, ...]:
    """Returns where tinygrad raised an error; for a rewrite that never ends, only its name: it was stopped anywhere."""
    crash = diagnose(error, KnownNodes())
    if crash is None:
        return ()
    if crash.kind != "error":
        return (crash.rewrite,)
    return crash.place, crash.rewrite, crash.rule


def build_graph(graph: PackedGraph, contents: dict[str, bytes]) -> list[Any]:
    """Returns the roots of a packed graph as UOps, its buffers with their contents."""
    from tinygrad.uop import Ops
    from tinygrad.uop.ops import UOp

    built: list[Any] = []
    for slot, node in enumerate(graph.nodes):
        if node.op == "BUFFER":
            device = graph.nodes[node.src[1]].arg
            data = contents.get(graph.blobs.get(slot, ""), b"")
            built.append(make_buffer(_DEVICES.get(device, device), node.arg, node.dtype, data))
            continue
        arg = node.arg
        if node.op == "DEVICE":
            arg = _DEVICES.get(arg, arg)
        built.append(UOp(Ops[node.op], node.dtype, tuple(built[s] for s in node.src), arg))
    return [built[root] for root in graph.roots]


if __name__ == "__main__":
    main()
