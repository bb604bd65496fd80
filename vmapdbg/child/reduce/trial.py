"""Runs graphs of tinygrad one after the other in a process of their own, and reports the outcome of each.

A Worker starts `main` in a child, with PATCHES and TARGET. The child reads a pickled (pickled PackedGraph, contents of
its buffers, switches of tinygrad) from stdin, and writes a pickled GraphTrial to stdout for each graph.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vmapdbg.child.evidence.evidence import PackedGraph
from vmapdbg.child.failures.diagnose import KnownNodes, diagnose
from vmapdbg.child.failures.endless import EndlessRewrite, Watcher
from vmapdbg.child.listen.rendering import make_renderer
from vmapdbg.child.listen.values_and_times import read_output
from vmapdbg.child.memory import find_changed, make_buffer, read_buffer, read_switches
from vmapdbg.install import overlay
from vmapdbg.install.job import Job
from vmapdbg.install.overlay import child_environment
from vmapdbg.install.patches import format_patches
from vmapdbg.model.capture import Output
from vmapdbg.model.wording import first_line

RUNS, HANGS, NOT_TRIED = "it runs", "it hangs", "not tried: a switch is missing"
OBSERVED = "observed"
"""In the place of patches: tinygrad as it is."""
_START = "from vmapdbg.child.reduce.trial import main; main()"
_PERIOD = 0.05
"""Seconds between two checks for a rewrite that never ends: many of the graphs have one."""
_DEVICES: dict[Any, Any] = {"NPY": "PYTHON"}
"""Arrays of numpy are read-only, and their device runs no kernels: this device is used in its place."""


@dataclass(frozen=True)
class GraphTrial:
    """The outcome of one graph: how it ended (`it runs`, or an error), the keys of its kernels, its outputs as in a
    capture (None: no buffer). `raised_at`: place, rewrite and rule of tinygrad's error. `contents` has the bytes of
    each output's buffer: if an output repeats elements, the buffer has each of them once."""

    end: str
    keys: tuple[str, ...]
    values: tuple[Output | None, ...]
    raised_at: tuple[str | None, ...] = ()
    contents: tuple[bytes, ...] = ()


class Worker:
    """A process that runs graphs with the patches and the target of a job, in an `environment` (empty: its own)."""

    def __init__(self, job: Job, environment: Mapping[str, str] = {}):
        patches = OBSERVED if job.patches is None else format_patches(job.patches)
        # the snippet's process has the job's patches in it
        self.environment = child_environment(None, dict(environment or os.environ))
        self.command = [sys.executable, "-c", _START, patches, job.target]
        self.process: Any = None

    def send(self, graph: bytes, contents: dict[str, bytes], switches: dict[str, int | str]) -> None:
        """Starts a trial of a pickled PackedGraph."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self.environment,
            )
        with contextlib.suppress(BrokenPipeError):
            pickle.dump((graph, contents, switches), self.process.stdin)
            self.process.stdin.flush()

    def receive(self, seconds: float) -> GraphTrial:
        """Returns the outcome of the graph that was sent. It hangs if that takes longer than `seconds`."""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            self.close()
            return GraphTrial(HANGS, (), ())
        try:
            return pickle.load(self.process.stdout)
        except (EOFError, pickle.UnpicklingError):
            self.close()
            return GraphTrial("it died", (), ())

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


# *** in the child


def main() -> None:
    patches, target = sys.argv[1:]
    if patches != OBSERVED:
        overlay.install(patches)
        # the fusion patches decide by the target
        overlay.get_state().find_renderer = partial(make_renderer, target)
    from tinygrad.helpers import Context

    Watcher(period=_PERIOD).start()
    # stdout is for answers only
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # the tool closes stdin when it ends
    with contextlib.suppress(EOFError):
        while True:
            graph, contents, switches = pickle.load(sys.stdin.buffer)
            trial = GraphTrial(NOT_TRIED, (), ())
            if switches.keys() <= read_switches().keys():
                with Context(**find_changed(switches)):
                    trial = _try_graph(pickle.loads(graph), contents)
            pickle.dump(trial, answers)
            answers.flush()


def _try_graph(graph: PackedGraph, contents: dict[str, bytes]) -> GraphTrial:
    """Schedules the roots of a graph, together, and runs them."""
    from tinygrad.tensor import Tensor

    try:
        uops = build_graph(graph, contents)
        tensors = [Tensor(u, device=u.device) for u in uops]
        keys: tuple[str, ...] = ()
        if overlay.is_installed():
            from tinygrad.engine.realize import run_schedule

            items, variables = tensors[0].schedule_with_vars(*tensors[1:])
            keys = tuple(item.ast.key.hex() for item in items)
            run_schedule(items, variables)
        else:
            # the keys of two trials are compared only with the overlay
            tensors[0].realize(*tensors[1:])
        values = tuple(map(read_output, tensors))
        pairs = zip(tensors, values, strict=True)
        held = tuple(b"" if value is None else read_buffer(tensor.uop.base.buffer) for tensor, value in pairs)
        return GraphTrial(RUNS, keys, values, contents=held)
    except (Exception, EndlessRewrite) as error:  # any error of the scheduler is an outcome
        return GraphTrial(f"{type(error).__name__}: {first_line(error)}", (), (), raised_at=_place_of(error))


def _place_of(error: BaseException) -> tuple[str | None, ...]:
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
