"""Reduces the graph of a snippet to a small one that still comes out differently with two sets of patches; or that goes
wrong in the same way with one, see `wrong_alone`.

Started by `launcher` as `python -m vmapdbg.child.reduce.reducer REQUEST`, with the overlay. Each smaller graph is run
by a worker (`trial`) for each set; one that hangs is killed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, pack_graph
from vmapdbg.child.failures.lifeline import hold
from vmapdbg.child.memory import read_buffer
from vmapdbg.child.reduce.trial import Trial, build_graph, read_frame, write_frame
from vmapdbg.child.switches import find_changed
from vmapdbg.diff.values import compare_output
from vmapdbg.install import overlay
from vmapdbg.install.job import Job, ReduceRequest, dump_record, load_request
from vmapdbg.install.patches import format_patches
from vmapdbg.model.store import write_atomically


def main() -> None:
    request = load_request(ReduceRequest, sys.argv[1])
    hold(request.lifeline)
    assert request.job.patches is not None
    overlay.install(format_patches(request.job.patches))
    reducer = Reducer(request)
    try:
        result = reducer.run()
    finally:
        reducer.close()
    write_atomically(request.output, json.dumps(result))


_HANGS = "it hangs"
_SHORTEST = 4.0
"""The fewest seconds after which a graph is taken to hang: a process may have to be started."""


class Worker:
    """A process that runs graphs with the patches of one job; `request` is what its reducer is asked for."""

    def __init__(self, job: Job, request: ReduceRequest):
        self.request = replace(request, job=job)
        self.process: Any = None

    def send(self, question: bytes) -> None:
        if self.process is None:
            command = [sys.executable, "-m", "vmapdbg.child.reduce.trial", dump_record(self.request)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        with contextlib.suppress(BrokenPipeError):
            write_frame(self.process.stdin, question)

    def receive(self, seconds: float) -> Trial:
        """Returns what came of the graph that was sent; it hangs where that takes longer."""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            self.close()
            return Trial(_HANGS, (), ())
        answer = read_frame(self.process.stdout)
        if answer is None:
            self.close()
            return Trial("it died", (), ())
        return pickle.loads(answer)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Reducer:
    """Tries smaller graphs, one after the other, and keeps those that still show what is wrong."""

    def __init__(self, request: ReduceRequest):
        self.request = request
        jobs = [job for job in (request.job, request.other) if job is not None]
        self.workers = [Worker(job, request) for job in jobs]
        self.end = time.monotonic() + request.seconds
        self.tried = 0
        # those of the schedule that is made smaller: a smaller graph must not differ by less than that one
        self.terms = 0
        self.wanted: Any = None
        # of tinygrad, that the snippet set when it realized that schedule
        self.switches: dict[str, int | str] = {}
        # seconds after which a graph is taken to hang
        self.patience = request.hang
        # roots of graphs that do not show it
        self.refused: set[tuple[Any, ...]] = set()

    @functools.cached_property
    def replacements(self) -> Any:
        from vmapdbg.child.reduce.replacements import Replacements

        return Replacements()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def run(self) -> dict[str, Any]:
        """Returns the snippet and how it was got, or `reason` why there is none."""
        from tinygrad.tensor import Tensor

        from vmapdbg.child.reduce.shrink import count_nodes
        from vmapdbg.child.reduce.snippet_data import WriteError
        from vmapdbg.child.reduce.snippet_writer import write_snippet

        start = self.find_start()
        if start is None:
            return {"reason": self.explain_nothing()}
        schedule, whole, roots = start
        before = count_nodes(whole)
        roots = self.reduce(roots)
        facts = {"before": before, "after": count_nodes(roots), "tried": self.tried, "schedule": schedule}
        comment = self.request.comment.format(**facts)
        try:
            tensors = [Tensor(u, device=u.device) for u in roots]
            return {"text": write_snippet(tensors, comment, self.switches), **facts}
        except WriteError as error:
            return {"reason": str(error)}

    def explain_nothing(self) -> str:
        if self.request.other is not None:
            return "no single schedule of the snippet shows the difference when it is run by itself"
        return (
            "all sets of patches end alike, and no single schedule fails or has wrong values when it is run by itself"
        )

    def find_start(self) -> tuple[int, list[Any], list[Any]] | None:
        """The first schedule that shows the difference, or the first value on the way to its outputs that does: a later
        schedule may read it. With its number, and the roots of all of it."""
        from vmapdbg.child.reduce.shrink import earlier_outputs

        graphs = list(self.read_graphs())
        outputs = ((evidence, roots, roots) for evidence, roots in graphs)
        earlier = ((evidence, roots, made) for evidence, roots in graphs for made in earlier_outputs(roots))
        for evidence, whole, roots in itertools.chain(outputs, earlier):
            # whole schedules are all tried, however long that takes
            if roots is not whole and time.monotonic() > self.end:
                return None
            self.terms = self.request.terms[evidence.schedule]
            self.switches = find_changed(evidence.switches)
            start = time.monotonic()
            self.wanted = self.compare(roots)
            if self.wanted is None:
                continue
            # a smaller graph that takes much longer shows something else
            if _HANGS not in str(self.wanted):
                self.patience = min(self.request.hang, max(_SHORTEST, 5 * (time.monotonic() - start)))
            return evidence.schedule, whole, roots
        return None

    def read_graphs(self) -> Iterator[tuple[Evidence, list[Any]]]:
        """Yields the evidence of each schedule, and the roots of its graph."""
        assert self.request.evidence is not None
        folder = EvidenceFolder(Path(self.request.evidence))
        for file in folder.find_files():
            evidence: Evidence = pickle.loads(file.read_bytes())
            # a replay is the graph of its schedule once more
            if evidence.graph is None or evidence.replay is not None:
                continue
            graph = evidence.graph.get()
            contents = {name: folder.read_data(name) for name in set(graph.blobs.values())}
            yield evidence, build_graph(graph, contents)

    def reduce(self, roots: list[Any]) -> list[Any]:
        from vmapdbg.child.reduce.shrink import LAST_STEPS, STEPS

        last: list[Any] = []
        while roots != last and time.monotonic() < self.end:
            last = roots
            for step in STEPS:
                roots = self.repeat_step(step, roots)
            roots = self.replace_nodes(roots)
            if roots == last:
                for step in LAST_STEPS:
                    roots = self.repeat_step(step, roots)
        return roots

    def repeat_step(self, step: Any, roots: list[Any]) -> list[Any]:
        """Returns the smallest graph that a step leads to, taken as often as it helps."""
        while (smaller := self.take_step(step, roots)) is not None:
            roots = smaller
        return roots

    def take_step(self, step: Any, roots: list[Any]) -> list[Any] | None:
        """Returns the first graph of a step that is smaller and still shows the difference, None for none."""
        from vmapdbg.child.reduce.shrink import plainer_numbers

        # plainer numbers make no graph smaller, and run out
        return next((made for made in step(roots) if self.is_kept(made, roots, step is plainer_numbers)), None)

    def replace_nodes(self, roots: list[Any]) -> list[Any]:
        """Returns the graph with nodes replaced where what is looked for does not depend on them."""
        from tinygrad.uop.ops import UOp

        from vmapdbg.child.reduce.replacements import replace_node

        left = set(UOp.sink(*roots).toposort())
        for u, made in self.replacements.list_all(roots):
            if time.monotonic() > self.end:
                break
            if u not in left:
                continue
            candidate = replace_node(roots, u, made)
            if self.is_kept(candidate, roots):
                roots = candidate
                left = set(UOp.sink(*roots).toposort())
        return roots

    def is_kept(self, candidate: list[Any], roots: list[Any], may_be_as_large: bool = False) -> bool:
        """Tells whether a graph is smaller than another one and still shows the difference."""
        from vmapdbg.child.reduce.shrink import measure

        if time.monotonic() > self.end or tuple(candidate) in self.refused:
            return False
        size, before = measure(candidate), measure(roots)
        if not (size < before or (may_be_as_large and size == before)):
            return False
        if self.compare(candidate) == self.wanted:
            return True
        self.refused.add(tuple(candidate))
        return False

    def compare(self, roots: list[Any]) -> Any:
        """Returns in what way the two sets of patches differ on a graph, or what is wrong with it where there is one
        set alone; None where that is nothing."""
        contents: dict[str, bytes] = {}

        def keep(u: Any) -> str:
            name = str(len(contents))
            contents[name] = read_buffer(u.buffer)
            return name

        question = pickle.dumps((pack_graph(roots, keep), contents, self.switches))
        self.tried += 1
        if self.tried % 10 == 0:
            write_atomically(self.request.progress, f"{self.tried} graphs tried")
        for worker in self.workers:
            worker.send(question)
        one, *others = [worker.receive(self.patience) for worker in self.workers]
        if not others:
            from vmapdbg.child.reduce.wrong_alone import find_fault

            return find_fault(one, roots, self.wanted)
        return find_difference(one, others[0], self.request.by, self.terms)


def find_difference(one: Trial, other: Trial, kind: str, terms: int) -> Any:
    """Returns the ends where they differ; the codes that only one has, or `kernels` or `values`, where these differ and
    both run; None else. Values differ where `vmapdbg diff` says so of schedules that sum up as many `terms`."""
    ends = one.end.partition(":")[0], other.end.partition(":")[0]
    if ends[0] != ends[1]:
        # a graph that both refuse, each in its way, shows nothing
        if kind == "kernels" or "it runs" not in ends:
            return None
        return one.end, other.end
    if one.end != "it runs" or kind == "crash":
        return None
    if kind == "findings":
        only = [sorted({*a.codes} - {*b.codes}) for a, b in ((one, other), (other, one))]
        if not any(only):
            return None
        return only
    if kind == "kernels":
        differ = one.keys != other.keys
    else:
        found = [compare_output(0, *pair, terms) for pair in zip(one.values, other.values, strict=True)]
        differ = any(diff.status == "different" for diff in found)
    if not differ:
        return None
    return kind


if __name__ == "__main__":
    main()
