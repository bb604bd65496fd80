"""Has oracles compute what a snippet should have got, and compares. Runs in a child of its own.

Started by `launcher` as `python -m vmapdbg.child.oracle.checker REQUEST` when the snippet is done, in a process without
the overlay: nothing of what is being checked takes part."""

from __future__ import annotations

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
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.oracle.first_wrong_buffer import Walk
from vmapdbg.child.oracle.in_double import Widening
from vmapdbg.child.oracle.oracle import Oracle, find_oracle
from vmapdbg.child.oracle.unroll import Unroller
from vmapdbg.data import to_data
from vmapdbg.job import CheckRequest, load_request
from vmapdbg.store import write_atomically
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
        stock_runs = None
        graph = self.evidence.graph
        if graph is not None and self.evidence.failed is not None:
            stock_runs = self.try_stock()
        elif graph is not None:
            for name in oracles:
                outputs += self.check_outputs(name)
        wrong = any(output.comparison.status == "wrong" for output in outputs)
        return ScheduleCheck(
            schedule=self.evidence.schedule,
            line=self.evidence.line,
            outputs=tuple(outputs),
            buffers=tuple(self.walk_back(outputs)) if wrong else (),
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
        passed: bool,
        oracle: type[Oracle],
        widening: Widening | None = None,
        given: Mapping[int, Array] = {},
    ) -> Unroller:
        graph = self.evidence.passed if passed else self.evidence.graph
        assert graph is not None
        self.unrollers.append(Unroller(graph, self.folder.read_data, oracle, widening, given))
        return self.unrollers[-1]

    def try_stock(self) -> bool | None:
        """Tells whether stock tinygrad computes the graph; None where that would take too many graphs."""
        unroller = self.make_unroller(passed=False, oracle=find_oracle(DEFAULT))
        if self.count(unroller, unroller.graph.roots) > self.limit:
            return None
        try:
            unroller.evaluate(unroller.graph.roots)
        except Exception:  # whatever it is, stock cannot do it either
            return False
        return True

    def count(self, unroller: Unroller, slots: list[int]) -> int:
        return sum(map(unroller.scopes.count_evaluations, slots))

    # *** outputs

    def check_outputs(self, oracle: str) -> list[OutputCheck]:
        unroller = self.make_unroller(passed=False, oracle=find_oracle(oracle))
        refusal = unroller.oracle.refuse(unroller.graph)
        if refusal is not None:
            self.unchecked.append(f"{ORACLES[oracle]} does not compute it: {refusal}")
            return []
        roots, values = unroller.graph.roots, self.evidence.values
        known = [number for number, value in enumerate(values) if value is not None]
        if self.count(unroller, [roots[n] for n in known]) > self.limit:
            return [check for n in known if (check := self.check_rows(unroller, n, oracle)) is not None]
        expected = unroller.evaluate([roots[n] for n in known])
        checks = []
        for position, (number, right) in enumerate(zip(known, expected, strict=True)):

            def again(other: Unroller, at: int = position) -> Array:
                return other.evaluate([roots[n] for n in known])[at]

            checks.append(self.check_output(unroller, number, oracle, right, again, None))
        return checks

    def check_output(
        self,
        unroller: Unroller,
        number: int,
        oracle: str,
        right: Array,
        again: Callable[[Unroller], Array],
        step: int | None,
    ) -> OutputCheck:
        blob = self.evidence.values[number]
        assert blob is not None
        got = Array(self.folder.read_data(blob), right.dtype, self.full_shape(unroller, number))
        root = unroller.graph.roots[number]
        rows = None
        if step is not None:
            got, rows = self.take_rows(unroller, root, got, step)
        found = self.compare(unroller, root, got, right, again, passed=False)
        return OutputCheck(number, right.shape, right.dtype, oracle, found, rows)

    def full_shape(self, unroller: Unroller, number: int) -> tuple[int, ...]:
        return tuple(unroller.scopes.node(unroller.graph.roots[number]).shape or ())

    def compare(
        self,
        unroller: Unroller,
        slot: int,
        got: Array,
        right: Array,
        again: Callable[[Unroller], Array],
        passed: bool,
    ) -> Comparison:
        found = compare(got, right, unroller.scopes.count_roundings(slot))
        if found.status != "wrong" or not is_float(right.dtype):
            return found
        try:
            wide = [again(self.make_unroller(passed, type(unroller.oracle), Widening(s))) for s in (None, *SEEDS)]
        except Exception:  # not every device has doubles, not every graph can be widened
            return found
        exact, *moved = [decode(array) for array in wide]
        # what is not finite is sorted out by `excuse_rounding`
        with np.errstate(invalid="ignore", over="ignore"):
            spread = np.fmax.reduce([np.abs(other - exact) for other in moved])
        return excuse_rounding(got, right, found, Rounding(exact, spread))

    # *** some rows of what is too large

    def check_rows(self, unroller: Unroller, number: int, oracle: str) -> OutputCheck | None:
        """Checks some steps of an output that leaves a scope, where all of them are too many."""
        root = unroller.graph.roots[number]
        cost = unroller.scopes.count_evaluations(root)
        if cost <= self.limit:
            right = unroller.evaluate([root])[0]
            return self.check_output(unroller, number, oracle, right, lambda u: u.evaluate([root])[0], None)
        leaves = unroller.scopes.find_leaving(root)
        steps = 0 if leaves is None else unroller.scopes.size(unroller.scopes.named_ranges(leaves)[0])
        if leaves is None or cost // steps > self.limit:
            self.unchecked.append(f"output {number} would take {cost:,} graphs (--elements {self.limit})")
            return None
        chosen = choose_steps(steps, max(1, self.limit // (cost // steps)))
        self.unchecked.append(
            f"output {number}: {steps - len(chosen):,} of {steps:,} steps of its scope (--elements {self.limit})"
        )
        return self.check_chosen(unroller, number, oracle, leaves, chosen)

    def check_chosen(
        self, unroller: Unroller, number: int, oracle: str, leaves: int, chosen: list[int]
    ) -> OutputCheck | None:
        worst: OutputCheck | None = None
        for step in chosen:
            right = unroller.evaluate_step(leaves, step)
            check = self.check_output(
                unroller, number, oracle, right, lambda u, s=step: u.evaluate_step(leaves, s), step
            )
            if worst is None or _rank(check) > _rank(worst):
                worst = check
        return worst

    def take_rows(self, unroller: Unroller, root: int, got: Array, step: int) -> tuple[Array, str]:
        leaves = unroller.scopes.find_leaving(root)
        assert leaves is not None
        node = unroller.scopes.node(leaves)
        axis = node.src[1:].index(unroller.scopes.named_ranges(leaves)[0])
        whole = Array(got.data, got.dtype, tuple(node.shape or ()))
        return take_slice(whole, {axis: step}), f"slice {step} along axis {axis}"

    # *** the first wrong buffer

    def walk_back(self, outputs: list[OutputCheck]) -> list[BufferCheck]:
        """Compares the buffers between the kernels in the order of the schedule, up to the first wrong one."""
        if self.evidence.passed is None:
            return []
        oracle = next(output.oracle for output in outputs if output.comparison.status == "wrong")
        unroller = self.make_unroller(passed=True, oracle=find_oracle(oracle))

        def compare_buffer(slot: int, got: Array, right: Array) -> Comparison:
            return self.compare(unroller, slot, got, right, lambda u: u.evaluate_batch(slot), passed=True)

        def remake(given: Mapping[int, Array]) -> Unroller:
            return self.make_unroller(passed=True, oracle=find_oracle(oracle), given=given)

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
