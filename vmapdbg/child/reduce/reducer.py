"""Reduces the graph of a snippet to a small one with the same fault: different outcomes with two sets of patches, or
a wrong outcome with one set.

Started by `children.start_process` as `python -m vmapdbg.child.reduce.reducer REQUEST`, with the overlay, or with a
tinygrad as it is: then there is one worker, and a graph is judged by the numpy reference. A worker
(`trial`) for each set of patches runs the smaller graphs; a worker that hangs is killed.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vmapdbg.child.compare.reference_values import ComparedGraph
from vmapdbg.child.evidence.evidence import Evidence, EvidenceFolder, PackedGraph, pack_graph
from vmapdbg.child.evidence.packer import CannotPack, Packer, find_variables
from vmapdbg.child.failures.snippet_end import hold
from vmapdbg.child.memory import find_changed, read_buffer
from vmapdbg.child.reduce.trial import HANGS, RUNS, GraphTrial, Worker, build_graph
from vmapdbg.diff.values import compare_output
from vmapdbg.install import overlay
from vmapdbg.install.job import ReduceRequest, load_request
from vmapdbg.install.patches import format_patches
from vmapdbg.model.store import write_atomically
from vmapdbg.values.numbers import Array

UOp = Any

VALUES = "values"
_HANG = 20.0
"""A graph hangs if it runs for this many seconds; --timeout replaces it."""
_SHORTEST = 4.0
"""A graph hangs after this many seconds at least: a worker may have to start first."""


def main() -> None:
    request = load_request(ReduceRequest, sys.argv[1])
    hold(request.lifeline)
    if request.job.patches is not None:
        overlay.install(format_patches(request.job.patches))
    # its workers are in its process group, and end with it
    write_atomically(request.output, json.dumps(Reducer(request).run()))


class Reducer:
    """Tries smaller graphs one after the other, and keeps a graph if it still shows the fault."""

    def __init__(self, request: ReduceRequest):
        self.request = request
        jobs = [job for job in (request.job, request.other) if job is not None]
        self.workers = list(map(Worker, jobs))
        self.end = time.monotonic() + request.seconds
        self.tried = 0
        # of the schedule that is reduced: a smaller graph must differ by as much
        self.terms = 0
        self.wanted: Any = None
        # switches of tinygrad that the snippet had set when it realized that schedule
        self.switches: dict[str, int | str] = {}
        # a graph hangs after this many seconds
        self.patience = request.job.timeout or _HANG
        # roots of graphs that do not show the fault
        self.refused: set[tuple[Any, ...]] = set()
        # it needs tinygrad, which may only be imported after the overlay is installed
        from vmapdbg.child.reduce import smaller

        self.smaller = smaller

    def run(self) -> dict[str, Any]:
        """Returns the snippet and counts of the search, or the `reason` why there is no snippet."""
        from tinygrad.tensor import Tensor

        from vmapdbg.child.reduce.snippet_writer import WriteError, write_snippet

        start = self.find_start()
        if start is None:
            shows = "fails or has wrong values" if self.request.other is None else "shows the difference"
            return {"reason": f"no single schedule {shows} when it is run by itself"}
        schedule, whole, roots = start
        # whole schedules take long
        self.end = time.monotonic() + self.request.seconds
        before, _ = self.smaller.measure(whole)
        roots = self.reduce(roots)
        after, _ = self.smaller.measure(roots)
        facts = {"before": before, "after": after, "tried": self.tried, "schedule": schedule}
        try:
            return {"text": write_snippet([Tensor(u, device=u.device) for u in roots], self.switches), **facts}
        except WriteError as error:
            return {"reason": str(error), "is_lost": True}

    def find_start(self) -> tuple[int, list[Any], list[Any]] | None:
        """Finds the first schedule that shows the difference, or the first value inside a schedule that does: a
        later schedule may read it. Returns its number, all its roots, and the roots to reduce."""
        assert self.request.evidence is not None
        folder = EvidenceFolder(Path(self.request.evidence))
        graphs: list[tuple[Evidence, list[UOp]]] = []
        for file in folder.find_files():
            evidence: Evidence = pickle.loads(file.read_bytes())
            # a replay has the graph of its schedule again
            if evidence.reducer_graph is not None and evidence.replay is None:
                graph: PackedGraph = pickle.loads(evidence.reducer_graph)
                contents = {name: folder.read_data(name) for name in set(graph.blobs.values())}
                graphs.append((evidence, build_graph(graph, contents)))
        for is_inside in (False, True):
            for evidence, whole in graphs:
                for roots in self.smaller.earlier_outputs(whole) if is_inside else (whole,):
                    # the time limit does not apply to whole schedules
                    if is_inside and time.monotonic() > self.end:
                        return None
                    self.terms = self.request.terms[evidence.schedule]
                    self.switches = find_changed(evidence.switches)
                    start = time.monotonic()
                    self.wanted = self.compare(roots)
                    if self.wanted is not None:
                        # a smaller graph that runs much longer has another fault
                        if HANGS not in str(self.wanted):
                            self.patience = min(self.patience, max(_SHORTEST, 5 * (time.monotonic() - start)))
                        return evidence.schedule, whole, roots
        return None

    def reduce(self, roots: list[Any]) -> list[Any]:
        last: list[Any] = []
        while roots != last and time.monotonic() < self.end:
            last = roots
            for step in (self.smaller.fewer_outputs, self.smaller.earlier_outputs, self.smaller.ReplacedNodes()):
                roots = self.repeat_step(step, roots)
            if roots == last:
                roots = self.repeat_step(self.smaller.smaller_sizes, roots)
        return roots

    def repeat_step(self, step: Any, roots: list[Any]) -> list[Any]:
        """Repeats a step as long as it finds a smaller graph that shows the difference, and returns the last graph."""
        found = roots
        while found is not None:
            roots = found
            found = next((made for made in step(roots) if self.is_kept(made, roots)), None)
        return roots

    def is_kept(self, candidate: list[Any], roots: list[Any]) -> bool:
        """Tells whether a graph is smaller than `roots` and still shows the difference."""
        if time.monotonic() > self.end or tuple(candidate) in self.refused:
            return False
        if self.smaller.measure(candidate) >= self.smaller.measure(roots):
            return False
        if self.compare(candidate) == self.wanted:
            return True
        self.refused.add(tuple(candidate))
        return False

    def compare(self, roots: list[Any]) -> Any:
        """Returns how the outcomes of a graph differ between the two sets of patches, or its fault if there is one set;
        None if there is no difference or fault."""
        contents: dict[str, bytes] = {}
        graph = pickle.dumps(pack_graph(roots, partial(_keep_content, contents)))
        self.tried += 1
        if self.tried % 10 == 0:
            write_atomically(self.request.progress, f"{self.tried} graphs tried")
        for worker in self.workers:
            worker.send(graph, contents, self.switches)
        one, *others = [worker.receive(self.patience) for worker in self.workers]
        if not others:
            return find_fault(one, roots, self.wanted)
        return find_difference(one, others[0], self.request.by, self.terms)


def _keep_content(contents: dict[str, bytes], u: UOp) -> str:
    """Keeps what a BUFFER has, and returns its name in `contents`."""
    name = str(len(contents))
    contents[name] = read_buffer(u.buffer)
    return name


def find_difference(one: GraphTrial, other: GraphTrial, kind: str, terms: int) -> Any:
    """Returns both ends if they differ, or `kernels` or `values` if these differ and both run; else None. Values differ
    by the rules of `vmapdbg diff` for schedules that sum as many `terms`."""
    ends = one.end.partition(":")[0], other.end.partition(":")[0]
    if ends[0] != ends[1]:
        # a graph that both refuse for different reasons shows nothing
        if kind == "kernels" or RUNS not in ends:
            return None
        return one.end, other.end
    if one.end != RUNS or kind == "crash":
        return None
    if kind == "kernels":
        differ = one.keys != other.keys
    else:
        found = [compare_output(0, *pair, terms) for pair in zip(one.values, other.values, strict=True)]
        differ = any(diff.status == "different" for diff in found)
    return None if not differ else kind


def find_fault(trial: GraphTrial, roots: Sequence[UOp], wanted: Any = None) -> Any:
    """Returns the fault that a smaller graph must also show: how it ended and where, or `values` if it runs and `check`
    finds a wrong value. None if it is right or unknown, or another fault is `wanted`."""
    if trial.end != RUNS:
        return trial.end.partition(":")[0], trial.raised_at
    if wanted not in (None, VALUES):
        return None
    contents: dict[str, bytes] = {}
    # a trial reads buffers; a permuted or expanded value shares the buffer of its base
    first, *others = bases = [root.base for root in roots]
    packer = Packer(lambda u: (_keep_content(contents, u),), find_variables(first.sink(*others).toposort()))
    try:
        packer.graph.roots = list(map(packer.pack, bases))
    except CannotPack:
        return None
    graph = ComparedGraph(packer.graph, contents.__getitem__, [])
    expected = graph.values.evaluate(packer.graph.roots)
    for slot, data, right in zip(packer.graph.roots, trial.contents, expected, strict=True):
        # unknown, or the buffer does not have every element
        if isinstance(right, str) or len(data) != len(right.data):
            continue
        if graph.compare(slot, Array(data, right.dtype, right.shape), right).status == "wrong":
            return VALUES
    return None


if __name__ == "__main__":
    main()
