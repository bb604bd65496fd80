"""Has oracles compute what a snippet should have got, and compares. Runs in a child of its own.

Started by `launcher` as `python -m vmapdbg.child.oracle.checker REQUEST` when the snippet is done, in a process without
the overlay: nothing of what is being checked takes part."""

from __future__ import annotations

import functools
import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from tinygrad.helpers import Context

from vmapdbg.check.compare import Rounding, compare, excuse_rounding
from vmapdbg.check.oracles import DEFAULT, ORACLES
from vmapdbg.check.result import BufferCheck, CheckReport, Comparison, OutputCheck, ScheduleCheck
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, PackedGraph
from vmapdbg.child.oracle.first_wrong_buffer import Walk
from vmapdbg.child.oracle.in_double import Widening
from vmapdbg.child.oracle.oracle import Oracle, find_oracle
from vmapdbg.child.oracle.unroll import Unroller
from vmapdbg.job.job import CheckRequest, load_request
from vmapdbg.model.data import to_data
from vmapdbg.model.store import write_atomically
from vmapdbg.values.numbers import Array, decode
from vmapdbg.values.slices import take_slice
from vmapdbg.values.tolerance import is_float

SEEDS = (1, 2, 3)
"""Runs with inputs and results moved by their rounding, when a float is wrong."""


def main() -> None:
    request = load_request(CheckRequest, sys.argv[1])
    assert request.evidence is not None
    folder = EvidenceFolder(Path(request.evidence))
    files = folder.find_files()
    checks = []
    for count, file in enumerate(files, 1):
        write_atomically(request.progress, f"schedule {count} of {len(files)}")
        evidence: Evidence = pickle.loads(file.read_bytes())
        # what the snippet was run with changes kernels, not values: BEAM would search again
        with Context(BEAM=0):
            checks.append(Checker(evidence, folder, request.limit).check(request.oracles))
    write_atomically(request.output, json.dumps(to_data(CheckReport(tuple(checks))), allow_nan=False))


class Checker:
    """Checks one schedule."""

    def __init__(self, evidence: Evidence, folder: EvidenceFolder, limit: int):
        self.evidence, self.folder, self.limit = evidence, folder, limit
        self.unchecked = list(evidence.unchecked)
        self.unrollers: list[Unroller] = []

    def check(self, oracles: Sequence[str]) -> ScheduleCheck:
        outputs: list[OutputCheck] = []
        buffers: list[BufferCheck] = []
        stock_runs = None
        graph = self.evidence.graph
        if graph is not None and self.evidence.failed is not None:
            stock_runs = self.try_stock(graph)
        elif graph is not None:
            for name in oracles:
                outputs += self.check_outputs(graph, name)
        wrong = [output for output in outputs if output.comparison.status == "wrong"]
        if wrong:
            buffers = self.walk_back(wrong[0].oracle)
        return ScheduleCheck(
            schedule=self.evidence.schedule,
            line=self.evidence.line,
            outputs=tuple(outputs),
            buffers=tuple(buffers),
            unchecked=tuple(dict.fromkeys(self.unchecked)),
            failed=self.evidence.failed,
            stock_runs=stock_runs,
            evaluations=sum(unroller.oracle.evaluations for unroller in self.unrollers),
            failed_kernel=self.evidence.failed_kernel,
            failed_node=self.evidence.failed_node,
            replay=self.evidence.replay,
        )

    def make_unroller(
        self,
        graph: PackedGraph,
        oracle: type[Oracle],
        widening: Widening | None = None,
        given: Mapping[int, Array] = {},
    ) -> Unroller:
        self.unrollers.append(Unroller(graph, self.folder.read_data, oracle, widening, given))
        return self.unrollers[-1]

    def try_stock(self, graph: PackedGraph) -> bool | None:
        """Tells whether stock tinygrad computes the graph; None where that would take too many graphs."""
        unroller = self.make_unroller(graph, find_oracle(DEFAULT))
        if self.count(unroller, graph.roots) > self.limit:
            return None
        try:
            unroller.evaluate(graph.roots)
        except Exception:  # whatever it is, stock cannot do it either
            return False
        return True

    def count(self, unroller: Unroller, slots: list[int]) -> int:
        return sum(map(unroller.scopes.count_evaluations, slots))

    # *** outputs

    def check_outputs(self, graph: PackedGraph, oracle: str) -> list[OutputCheck]:
        unroller = self.make_unroller(graph, find_oracle(oracle))
        refusal = unroller.oracle.refuse(graph)
        if refusal is not None:
            self.unchecked.append(f"{ORACLES[oracle]} does not compute it: {refusal}")
            return []
        known = [number for number, value in enumerate(self.evidence.values) if value is not None]
        slots = [graph.roots[number] for number in known]
        if self.count(unroller, slots) > self.limit:
            return [check for n in known if (check := self.check_alone(unroller, n, oracle)) is not None]
        expected = unroller.evaluate(slots)
        checks = []
        for i, number in enumerate(known):
            check = self.check_output(unroller, number, oracle, expected[i], lambda u, i=i: u.evaluate(slots)[i])
            checks.append(check)
        return checks

    def check_output(
        self,
        unroller: Unroller,
        number: int,
        oracle: str,
        right: Array,
        again: Callable[[Unroller], Array],
        step: int | None = None,
    ) -> OutputCheck:
        """Checks an output, or what one step of its scope put there. `again` computes what is `right` anew."""
        blob = self.evidence.values[number]
        assert blob is not None
        root = unroller.graph.roots[number]
        got = Array(self.folder.read_data(blob), right.dtype, tuple(unroller.scopes.node(root).shape or ()))
        rows = None
        if step is not None:
            got, rows = self.take_rows(unroller, root, got, step)
        found = self.compare(unroller, root, got, right, again)
        return OutputCheck(number, right.shape, right.dtype, oracle, found, rows)

    def compare(
        self, unroller: Unroller, slot: int, got: Array, right: Array, again: Callable[[Unroller], Array]
    ) -> Comparison:
        """Compares the value of a node. A float that is wrong is computed `again` in double precision, to tell rounding
        from a fault."""
        found = compare(got, right, unroller.scopes.count_roundings(slot))
        if found.status != "wrong" or not is_float(right.dtype):
            return found
        oracle = type(unroller.oracle)
        try:
            wide = [again(self.make_unroller(unroller.graph, oracle, Widening(seed))) for seed in (None, *SEEDS)]
        except Exception:  # not every device has doubles, not every graph can be widened
            return found
        exact, *moved = [decode(array) for array in wide]
        # what is not finite is sorted out by `excuse_rounding`
        with np.errstate(invalid="ignore", over="ignore"):
            spread = np.fmax.reduce([np.abs(other - exact) for other in moved])
        return excuse_rounding(got, right, found, Rounding(exact, spread))

    # *** some rows of what is too large

    def check_alone(self, unroller: Unroller, number: int, oracle: str) -> OutputCheck | None:
        """Checks an output by itself, and where it is too large some steps of the scope that it leaves."""
        root = unroller.graph.roots[number]
        cost = unroller.scopes.count_evaluations(root)
        if cost <= self.limit:
            right = unroller.evaluate([root])[0]
            return self.check_output(unroller, number, oracle, right, lambda u: u.evaluate([root])[0])
        steps = 1
        leaves = unroller.scopes.find_leaving(root)
        if leaves is not None:
            steps = unroller.scopes.size(unroller.scopes.named_ranges(leaves)[0])
        if leaves is None or cost // steps > self.limit:
            self.unchecked.append(f"output {number} would take {cost:,} graphs (--elements {self.limit})")
            return None
        chosen = choose_steps(steps, max(1, self.limit // (cost // steps)))
        self.unchecked.append(
            f"output {number}: {steps - len(chosen):,} of {steps:,} steps of its scope (--elements {self.limit})"
        )
        checks = []
        for step in chosen:
            right = unroller.evaluate_step(leaves, step)
            again = functools.partial(Unroller.evaluate_step, slot=leaves, step=step)
            checks.append(self.check_output(unroller, number, oracle, right, again, step))
        return max(checks, key=_rank)

    def take_rows(self, unroller: Unroller, root: int, got: Array, step: int) -> tuple[Array, str]:
        leaves = unroller.scopes.find_leaving(root)
        assert leaves is not None
        node = unroller.scopes.node(leaves)
        axis = node.src[1:].index(unroller.scopes.named_ranges(leaves)[0])
        whole = Array(got.data, got.dtype, tuple(node.shape or ()))
        return take_slice(whole, {axis: step}), f"slice {step} along axis {axis}"

    # *** the first wrong buffer

    def walk_back(self, oracle: str) -> list[BufferCheck]:
        """Compares the buffers between the kernels in the order of the schedule, up to the first wrong one."""
        graph = self.evidence.passed
        if graph is None:
            return []
        unroller = self.make_unroller(graph, find_oracle(oracle))

        def compare_buffer(slot: int, got: Array, right: Array) -> Comparison:
            return self.compare(unroller, slot, got, right, lambda u: u.evaluate_batch(slot))

        def remake(given: Mapping[int, Array]) -> Unroller:
            return self.make_unroller(graph, find_oracle(oracle), given=given)

        return Walk(self.evidence, self.folder.read_data, self.limit, unroller, remake, compare_buffer).walk_back()


def choose_steps(count: int, wanted: int) -> list[int]:
    """Returns `wanted` steps of `count`, evenly spaced, the first and the last among them."""
    if wanted >= count:
        return list(range(count))
    if wanted == 1:
        return [0]
    return sorted({round(i * (count - 1) / (wanted - 1)) for i in range(wanted)})


def _rank(check: OutputCheck) -> int:
    return ("equal", "close", "rounding", "wrong").index(check.comparison.status)


if __name__ == "__main__":
    main()
