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
from numpy.typing import NDArray

from vmapdbg.check.compare import Rounding, compare, excuse_rounding
from vmapdbg.check.oracles import ORACLES
from vmapdbg.check.result import BufferCheck, CheckReport, Comparison, OutputCheck, ScheduleCheck
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.oracle.first_wrong_buffer import Walk
from vmapdbg.child.oracle.oracle import InDoublePrecision, Question, Refused, Values, Which, find_oracle
from vmapdbg.job.job import CheckRequest, load_request
from vmapdbg.model.data import to_data
from vmapdbg.model.store import write_atomically
from vmapdbg.values.numbers import ITEMSIZE, Array, decode
from vmapdbg.values.slices import take_slice, view_elements
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
        checks.append(Checker(evidence, folder, request.limit).check(request.oracles))
    write_atomically(request.output, json.dumps(to_data(CheckReport(tuple(checks))), allow_nan=False))


class Checker:
    """Checks one schedule."""

    def __init__(self, evidence: Evidence, folder: EvidenceFolder, limit: int):
        self.evidence, self.folder, self.limit = evidence, folder, limit
        self.unchecked = list(evidence.unchecked)
        self.opened: list[Values] = []
        self._widened: dict[tuple[str, Which, int | None], Values] = {}

    def check(self, oracles: Sequence[str]) -> ScheduleCheck:
        outputs: list[OutputCheck] = []
        buffers: list[BufferCheck] = []
        stock_runs = None
        if self.evidence.failed is not None:
            stock_runs = self.try_stock()
        elif self.evidence.is_kept:
            for name in oracles:
                outputs += self.check_outputs(name)
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
            evaluations=sum(values.evaluations for values in self.opened),
            failed_kernel=self.evidence.failed_kernel,
            failed_node=self.evidence.failed_node,
            replay=self.evidence.replay,
        )

    def open(
        self,
        oracle: str,
        which: Which,
        precision: InDoublePrecision | None = None,
        given: Mapping[int, Array] = {},
    ) -> Values | None:
        """Returns the values of a graph, None where the evidence has none for the oracle. Raises Refused."""
        question = Question(self.evidence, which, self.folder.read_data, precision, given)
        values = find_oracle(oracle).open(question)
        if values is not None:
            self.opened.append(values)
        return values

    def try_stock(self) -> bool | None:
        """Tells whether stock tinygrad computes the graph; None where that would take too many graphs."""
        try:
            values = self.open("stock", "asked")
        except Refused:
            return None
        if values is None or sum(map(values.count_evaluations, values.roots)) > self.limit:
            return None
        try:
            values.evaluate(values.roots)
        except Exception:  # whatever it is, stock cannot do it either
            return False
        return True

    # *** outputs

    def check_outputs(self, oracle: str) -> list[OutputCheck]:
        try:
            values = self.open(oracle, "asked")
        except Refused as refusal:
            self.unchecked.append(f"{ORACLES[oracle]} does not compute it: {refusal}")
            return []
        if values is None:
            return []
        outputs = self.read_outputs(oracle)
        slots = [values.roots[number] for number in outputs]
        if sum(map(values.count_evaluations, slots)) > self.limit:
            found = [self.check_alone(values, number, blob, oracle) for number, blob in outputs.items()]
            return [check for check in found if check is not None]
        checks = []
        expected = values.evaluate(slots)
        for i, (number, data) in enumerate(outputs.items()):
            right = expected[i]
            if isinstance(right, str):
                self.unchecked.append(f"output {number}: {right}")
                continue
            checks.append(self.check_output(values, number, data, oracle, right, lambda v, i=i: v.evaluate(slots)[i]))
        return checks + self.check_held(values, oracle)

    def read_outputs(self, oracle: str) -> dict[int, bytes]:
        """Returns what each output got, by its number, of those that are known."""
        read = self.folder.read_data
        known = {number: read(value) for number, value in enumerate(self.evidence.values) if value is not None}
        if oracle != "numpy" or self.evidence.got is None or not self.evidence.got_roots:
            for number in set(range(len(self.evidence.values))) - set(known):
                self.unchecked.append(f"output {number} is not read as one buffer")
            return known
        from vmapdbg.child.oracle.by_numpy import NumpyValues

        views = NumpyValues(self.evidence.got, read, None, {})
        for number, found in zip(
            self.evidence.got_roots, views.evaluate(list(self.evidence.got_roots.values())), strict=True
        ):
            if isinstance(found, str):
                self.unchecked.append(f"output {number}: {found}")
            else:
                known[number] = found.data
        return dict(sorted(known.items()))

    def check_output(
        self,
        values: Values,
        number: int,
        data: bytes,
        oracle: str,
        right: Array,
        again: Callable[[Values], Array | str],
        step: int | None = None,
    ) -> OutputCheck:
        """Checks an output, or what one step of its scope put there. `again` computes what is `right` anew."""
        root = values.roots[number]
        rows = None
        copies = len(data) // max(len(right.data), 1)
        if oracle == "numpy" and copies > 1:
            # each of its devices has the whole
            right, again = repeat(right, copies), functools.partial(_repeat_again, again, copies)
        if step is None:
            got = Array(data, right.dtype, right.shape)
        else:
            got, rows = self.take_rows(values, root, data, right.dtype, step)
        found = self.compare(oracle, "asked", values, root, got, right, again)
        return OutputCheck(number, right.shape, right.dtype, oracle, found, rows)

    def check_held(self, values: Values, oracle: str) -> list[OutputCheck]:
        """Checks what buffers of the snippet hold: those that it assigns to, and those that changed by themselves."""
        if oracle != "numpy":
            return []
        checks = []
        kept = values.evaluate([held.slot for held in self.evidence.held])
        for number, (held, right) in enumerate(zip(self.evidence.held, kept, strict=True)):
            if isinstance(right, str):
                self.unchecked.append(f"buffer {number} that it writes: {right}")
                continue
            got = Array(b"".join(map(self.folder.read_data, held.blobs)), right.dtype, right.shape)
            found = self.compare(
                oracle, "asked", values, held.slot, got, right, lambda v, slot=held.slot: v.evaluate([slot])[0]
            )
            of = "assigned" if held.is_assigned else "input"
            checks.append(OutputCheck(number, right.shape, right.dtype, oracle, found, None, of))
        return checks

    def compare(
        self,
        oracle: str,
        which: Which,
        values: Values,
        slot: int,
        got: Array,
        right: Array,
        again: Callable[[Values], Array | str],
    ) -> Comparison:
        """Compares the value of a node. One that is wrong is computed `again` in double precision, to tell rounding
        from a fault."""
        undefined = values.find_undefined(slot)
        if undefined is not None:
            got = replace_elements(got, right, undefined)
            self.unchecked.append(f"{int(undefined.sum()):,} elements that C or tinygrad leave undefined")
        found = compare(got, right, values.count_roundings(slot))
        # numpy's floats are not tinygrad's to the bit: an integer made of them may be another one, too
        if found.status != "wrong" or not (is_float(right.dtype) or oracle == "numpy"):
            return found
        try:
            wide = [again(self.open_widened(oracle, which, seed)) for seed in (None, *SEEDS)]
        except Exception:  # not every device has doubles, not every graph can be widened
            return found
        numbers = [decode(array).astype(np.float64) for array in wide if not isinstance(array, str)]
        if len(numbers) != len(wide):
            return found
        exact, *moved = numbers
        # what is not finite is sorted out by `excuse_rounding`
        with np.errstate(invalid="ignore", over="ignore"):
            spread = np.fmax.reduce([np.abs(other - exact) for other in moved])
        return excuse_rounding(got, right, found, Rounding(exact, spread))

    def open_widened(self, oracle: str, which: Which, seed: int | None) -> Values:
        key = (oracle, which, seed)
        if key not in self._widened:
            values = self.open(oracle, which, InDoublePrecision(seed))
            assert values is not None
            self._widened[key] = values
        return self._widened[key]

    # *** some rows of what is too large

    def check_alone(self, values: Values, number: int, data: bytes, oracle: str) -> OutputCheck | None:
        """Checks an output by itself, and where it is too large some steps of the scope that it leaves."""
        root = values.roots[number]
        cost = values.count_evaluations(root)
        if cost <= self.limit:
            right = values.evaluate([root])[0]
            assert not isinstance(right, str)
            return self.check_output(values, number, data, oracle, right, lambda v: v.evaluate([root])[0])
        steps = 1
        leaves = values.find_leaving(root)
        if leaves is not None:
            steps = values.find_leaving_axis(leaves)[1]
        if leaves is None or cost // steps > self.limit:
            self.unchecked.append(f"output {number} would take {cost:,} graphs (--elements {self.limit})")
            return None
        chosen = choose_steps(steps, max(1, self.limit // (cost // steps)))
        self.unchecked.append(
            f"output {number}: {steps - len(chosen):,} of {steps:,} steps of its scope (--elements {self.limit})"
        )
        checks = []
        for step in chosen:
            right = values.evaluate_step(leaves, step)
            assert not isinstance(right, str)
            again = functools.partial(_evaluate_step, slot=leaves, step=step)
            checks.append(self.check_output(values, number, data, oracle, right, again, step))
        return max(checks, key=_rank)

    def take_rows(self, values: Values, root: int, data: bytes, dtype: str, step: int) -> tuple[Array, str]:
        leaves = values.find_leaving(root)
        assert leaves is not None
        axis = values.find_leaving_axis(leaves)[0]
        whole = Array(data, dtype, values.find_shape(leaves) or ())
        return take_slice(whole, {axis: step}), f"slice {step} along axis {axis}"

    # *** the first wrong buffer

    def walk_back(self, oracle: str) -> list[BufferCheck]:
        """Compares the buffers between the kernels in the order of the schedule, up to the first wrong one."""
        try:
            values = self.open(oracle, "passed")
        except Refused:
            return []
        if values is None:
            return []

        def compare_buffer(slot: int, got: Array, right: Array) -> Comparison:
            return self.compare(oracle, "passed", values, slot, got, right, lambda v: v.evaluate_batch(slot))

        def remake(given: Mapping[int, Array]) -> Values:
            others = self.open(oracle, "passed", given=given)
            assert others is not None
            return others

        return Walk(self.evidence, self.folder.read_data, self.limit, values, remake, compare_buffer).walk_back()


def _evaluate_step(values: Values, slot: int, step: int) -> Array | str:
    return values.evaluate_step(slot, step)


def _repeat_again(again: Callable[[Values], Array | str], copies: int, values: Values) -> Array | str:
    found = again(values)
    return found if isinstance(found, str) else repeat(found, copies)


def repeat(array: Array, times: int) -> Array:
    return Array(array.data * times, array.dtype, (times, *array.shape))


def replace_elements(got: Array, right: Array, places: NDArray[np.bool_]) -> Array:
    """Returns an array with the elements of another one at some places of the flat array."""
    size = ITEMSIZE[got.dtype]
    mixed = np.where(places, view_elements(right.data, size), view_elements(got.data, size))
    return Array(mixed.tobytes(), got.dtype, got.shape)


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
