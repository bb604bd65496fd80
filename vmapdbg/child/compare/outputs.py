"""Compares the outputs of one schedule with those of an oracle, and the buffers of the snippet. Runs in the oracle."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from vmapdbg.check.compare import compare
from vmapdbg.check.oracles import ORACLES
from vmapdbg.check.result import CheckedKind, OutputCheck
from vmapdbg.child.compare.by_numpy import NumpyValues
from vmapdbg.child.compare.comparer import Again, Comparer
from vmapdbg.child.compare.oracle import Refused, Values
from vmapdbg.child.compare.stale_outputs import find_overwritten, find_stale_value
from vmapdbg.child.evidence.graphs import HeldBuffer
from vmapdbg.reference.graph import DEVICES
from vmapdbg.values.numbers import Array
from vmapdbg.values.slices import take_slice


class OutputChecker:
    """Checks the outputs of one schedule by one oracle. `limit` is the most graphs that are computed for them."""

    def __init__(self, comparer: Comparer, oracle: str, limit: int):
        self.comparer, self.oracle, self.limit = comparer, oracle, limit
        self.evidence, self.unchecked = comparer.evidence, comparer.unchecked
        self.read = comparer.folder.read_data

    def check_all(self) -> list[OutputCheck]:
        try:
            values = self.comparer.open(self.oracle, "asked")
        except Refused as refusal:
            self.unchecked.append(f"{ORACLES[self.oracle]} does not compute it: {refusal}")
            return []
        if values is None:
            return []
        outputs = self.read_outputs()
        slots = [values.roots[number] for number in outputs]
        if sum(map(values.count_evaluations, slots)) > self.limit:
            found = [self.check_alone(values, number, blob) for number, blob in outputs.items()]
            return [check for check in found if check is not None]
        checks = []
        expected = values.evaluate(slots)
        for index, (number, data) in enumerate(outputs.items()):
            right = expected[index]
            if isinstance(right, str):
                self.unchecked.append(f"output {number}: {right}")
                continue
            again = functools.partial(_evaluate, slots=slots, index=index)
            checks.append(self.check_output(values, number, data, right, again))
        return checks + self.check_held(values)

    def read_outputs(self) -> dict[int, bytes]:
        """Returns what each output got, by its number, of those that are known."""
        known = {number: self.read(value) for number, value in enumerate(self.evidence.values) if value is not None}
        if self.oracle != "numpy" or self.evidence.got is None or not self.evidence.got_roots:
            for number in set(range(len(self.evidence.values))) - set(known):
                self.unchecked.append(f"output {number} is not read as one buffer")
            return known
        views = NumpyValues(self.evidence.got, self.read, None, {})
        for number, found in zip(
            self.evidence.got_roots, views.evaluate(list(self.evidence.got_roots.values())), strict=True
        ):
            if isinstance(found, str):
                self.unchecked.append(f"output {number}: {found}")
            else:
                known[number] = found.data
        return dict(sorted(known.items()))

    def check_output(
        self, values: Values, number: int, data: bytes, right: Array, again: Again, step: int | None = None
    ) -> OutputCheck:
        """Checks an output, or what one step of its scope put there. `again` computes what is `right` anew."""
        root = values.roots[number]
        rows = None
        copies = len(data) // max(len(right.data), 1)
        if self.oracle == "numpy" and copies > 1:
            # each of its devices has the whole
            right, again = repeat(right, copies), functools.partial(_repeat_again, again, copies)
        if self.oracle == "numpy" and DEVICES in values.find_ambient(root):
            # what is right on each device was put together to one value
            data *= max(1, len(right.data) // max(len(data), 1))
        if step is None:
            got = Array(data, right.dtype, right.shape)
        else:
            got, rows = self.take_rows(values, root, data, right.dtype, step)
        found = self.comparer.compare(self.oracle, "asked", values, root, got, right, again)
        stale, overwritten = None, ()
        if found.status == "wrong" and isinstance(values, NumpyValues) and got.shape == values.find_shape(root):
            is_got = functools.partial(_is_got, slot=root, got=got, terms=values.count_roundings(root))
            stale = find_stale_value(self.evidence, values, root, is_got)
            overwritten = find_overwritten(self.evidence, values, self.read, is_got)
        check = OutputCheck(number, right.shape, right.dtype, self.oracle, found, rows, stale=stale)
        return replace(check, overwritten=overwritten)

    def check_held(self, values: Values) -> list[OutputCheck]:
        """Checks what buffers of the snippet hold: those that it assigns to, and those that changed by themselves."""
        if self.oracle != "numpy":
            return []
        checks = []
        kept = values.evaluate([held.slot for held in self.evidence.held])
        for number, (held, right) in enumerate(zip(self.evidence.held, kept, strict=True)):
            if held.part_of is not None:
                checks += self.check_part(values, held, held.part_of, right)
            elif isinstance(right, str):
                self.unchecked.append(f"buffer {number} that it writes: {right}")
            else:
                checks.append(self.check_buffer(values, held, number, right))
        return checks

    def check_buffer(self, values: Values, held: HeldBuffer, number: int, right: Array) -> OutputCheck:
        got = Array(b"".join(map(self.read, held.blobs)), right.dtype, right.shape)
        again = functools.partial(_evaluate, slots=[held.slot], index=0)
        found = self.comparer.compare(self.oracle, "asked", values, held.slot, got, right, again)
        of = name_held(held)
        check = OutputCheck(number, right.shape, right.dtype, self.oracle, found, None, of, held.is_written)
        writer = self.evidence.find_written(held.launch)
        if writer is not None:
            check = replace(check, writer=writer.kernel, writer_node=writer.node)
        return check

    def check_part(self, values: Values, held: HeldBuffer, number: int, right: Array | str) -> list[OutputCheck]:
        """Checks what an item assignment changed. Only what is wrong is told: the assigned buffer tells the rest."""
        if isinstance(right, str):
            return []
        told = len(self.unchecked)
        check = self.check_buffer(values, held, number, right)
        del self.unchecked[told:]
        return [check] if check.comparison.status == "wrong" else []

    # *** some rows of what is too large

    def check_alone(self, values: Values, number: int, data: bytes) -> OutputCheck | None:
        """Checks an output by itself, and where it is too large some steps of the scope that it leaves."""
        root = values.roots[number]
        cost = values.count_evaluations(root)
        if cost <= self.limit:
            right = values.evaluate([root])[0]
            assert not isinstance(right, str)
            again = functools.partial(_evaluate, slots=[root], index=0)
            return self.check_output(values, number, data, right, again)
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
            checks.append(self.check_output(values, number, data, right, again, step))
        return max(checks, key=_rank)

    def take_rows(self, values: Values, root: int, data: bytes, dtype: str, step: int) -> tuple[Array, str]:
        leaves = values.find_leaving(root)
        assert leaves is not None
        axis = values.find_leaving_axis(leaves)[0]
        whole = Array(data, dtype, values.find_shape(leaves) or ())
        return take_slice(whole, {axis: step}), f"slice {step} along axis {axis}"


def _evaluate(values: Values, slots: Sequence[int], index: int) -> Array | str:
    """Returns the value of one of the nodes that are computed together."""
    return values.evaluate(slots)[index]


def name_held(held: HeldBuffer) -> CheckedKind:
    if held.part_of is not None:
        return "unchosen"
    if held.is_assigned:
        return "assigned"
    return "live" if held.is_live else "input"


def _is_got(values: Values, slot: int, got: Array, terms: int) -> bool:
    """Tells whether a node of other values of a graph has what was got."""
    found = values.evaluate([slot])[0]
    return not isinstance(found, str) and compare(got, found, terms).status != "wrong"


def _evaluate_step(values: Values, slot: int, step: int) -> Array | str:
    return values.evaluate_step(slot, step)


def _repeat_again(again: Again, copies: int, values: Values) -> Array | str:
    found = again(values)
    if isinstance(found, str):
        return found
    return repeat(found, copies)


def repeat(array: Array, times: int) -> Array:
    return Array(array.data * times, array.dtype, (times, *array.shape))


def choose_steps(count: int, wanted: int) -> list[int]:
    """Returns `wanted` steps of `count`, evenly spaced, the first and the last among them."""
    if wanted >= count:
        return list(range(count))
    if wanted == 1:
        return [0]
    return sorted({round(i * (count - 1) / (wanted - 1)) for i in range(wanted)})


def _rank(check: OutputCheck) -> int:
    return ("equal", "close", "rounding", "wrong").index(check.comparison.status)
