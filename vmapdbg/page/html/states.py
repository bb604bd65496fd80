"""Makes the page of several states of the patches: switches choose the state that is shown.

What is equal in two states is in the page once: the whole page if their schedules are equal, else each line of HTML and
each entry of the data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vmapdbg.install.patches import PATCHES, PatchState
from vmapdbg.model.capture import Capture
from vmapdbg.model.schedule_index import kernel_identity
from vmapdbg.model.wording import format_plural
from vmapdbg.page.graph.dot import clean_text
from vmapdbg.page.html.nodes import Texts
from vmapdbg.page.html.page import PARTS, Report, fill_page, fill_parts, ratio
from vmapdbg.page.html.source import SourceFile
from vmapdbg.page.overview import Cost, KernelRow, sum_kernels
from vmapdbg.page.view import View

_SUMMARIES = {patch.name: patch.summary for patch in PATCHES}


@dataclass(frozen=True)
class Switch:
    """A box to check: the numbers of the states to show when it is checked, and when it is not. `says` is what
    changes."""

    name: str
    title: str
    on: int
    off: int
    says: str
    failed: bool


def render_states(states: Sequence[tuple[PatchState, Capture]], files: Sequence[SourceFile], made: str = "") -> str:
    """Returns captures of one snippet with different patches as one HTML document. It shows the first, and has a switch
    for each other. For `files` and `made` see `render_report`."""
    report = _States(states, files)
    return fill_page(View.of_one(states[0][1]), report.make_data(), made, switches=report.switches)


class _Once:
    """Values that are in a page once, by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        key = json.dumps(value)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


class _States:
    """What the template asks for around the pages of the states."""

    def __init__(self, states: Sequence[tuple[PatchState, Capture]], files: Sequence[SourceFile]) -> None:
        self.states, self.files = states, files
        self.totals = [sum_kernels(capture) for _, capture in states]
        self.distinct: list[Capture] = []
        # a program has one number in all states, so that pieces that name it are equal
        self.programs: dict[tuple[str, str], int] = {}
        # for each state the number of its page in `distinct`
        self.pages = [self._find_page(capture) for _, capture in states]
        self.switches = [self._make_switch(number, state) for number, (state, _) in enumerate(states) if number > 0]
        # the switches of single patches come first
        self.switches.sort(key=lambda switch: switch.on != 0)

    def _find_page(self, capture: Capture) -> int:
        for number, known in enumerate(self.distinct):
            if _list_shown(known) == _list_shown(capture):
                return number
        self.distinct.append(capture)
        return len(self.distinct) - 1

    def _make_switch(self, number: int, state: PatchState) -> Switch:
        failed = self.states[number][1].error is not None
        says = self._compare(number)
        if not state.off:
            return Switch("none", "No patch on", number, 0, says, failed)
        return Switch(state.off, _SUMMARIES[state.off], 0, number, f"without it {says}", failed)

    def _compare(self, number: int) -> str:
        """What a state changes, compared with the first."""
        first, capture = self.states[0][1], self.states[number][1]
        if capture.error is not None:
            return clean_text(capture.error.type)
        if self.pages[number] == self.pages[0]:
            return "nothing changes"
        before, after = self.totals[0], self.totals[number]
        count, more = format_plural(after.kernels, "kernel"), after.kernels - before.kernels
        if _count_programs(first) == _count_programs(capture):
            # the times differ, but by chance
            return f"the same {count}"
        if more:
            count += f" ({more:+,})"
        said = [count, *_list_ratios(before, after)]
        if len(first.findings) != len(capture.findings):
            said.append(format_plural(len(capture.findings), "finding"))
        return ", ".join(said)

    # *** for the script

    def make_data(self) -> dict[str, Any]:
        texts, parts, rows = Texts(), _Once(), _Once()
        pages = [self._make_page(capture, texts, parts, rows) for capture in self.distinct]
        return {
            "states": [self._describe_state(number) for number in range(len(self.states))],
            "pages": pages,
            PARTS: parts.values,
            "rows": rows.values,
            "texts": texts.list_all(),
        }

    def _describe_state(self, number: int) -> list[Any]:
        """The number of its page, a sentence about it, and for each switch whether it is on."""
        state, capture = self.states[number]
        said = f"Shown: {state.words}, {format_plural(self.totals[number].kernels, 'kernel')}"
        if capture.error is not None:
            said += f", ended by {clean_text(capture.error.type)}"
        on = [self._is_on(switch, number) for switch in self.switches]
        return [self.pages[number], said, on]

    def _is_on(self, switch: Switch, number: int) -> bool:
        """Whether a switch is checked while a state is shown."""
        if switch.on:
            return number == switch.on
        return bool(self.states[number][0].patches) and number != switch.off

    def _number(self, row: KernelRow) -> int:
        return self.programs.setdefault((kernel_identity(row.kernel), row.kernel.name), len(self.programs))

    def _make_page(self, capture: Capture, texts: Texts, parts: _Once, rows: _Once) -> dict[str, Any]:
        report = Report(View.of_one(capture), self.files, number=self._number)
        overview, main = fill_parts(report, has_switches=True)
        data = report.make_data(texts)
        return {
            "overview": [parts.number(line) for line in overview.split("\n")],
            "main": [parts.number(line) for line in main.split("\n")],
            "lines": [rows.number(line) for line in data["lines"]],
            "numbers": report.programs,
            "kernels": [rows.number(kernel) for kernel in data["kernels"]],
            "nodes": {key: rows.number(node) for key, node in data["nodes"].items()},
        }


def _list_shown(capture: Capture) -> object:
    """What a page shows of a capture. The switches show which patches are on."""
    return capture.schedules, capture.error, capture.findings, capture.missing


def _count_programs(capture: Capture) -> Counter[str]:
    return Counter(kernel_identity(kernel) for kernel in capture.kernels)


def _list_ratios(before: Cost, after: Cost) -> list[str]:
    """`1.91x ops`, for what changed."""
    ratios = {
        "ops": ratio(before.ops, after.ops),
        "bytes": ratio(before.bytes, after.bytes),
        "time": ratio(before.seconds, after.seconds),
    }
    return [f"{times} {what}" for what, times in ratios.items() if times not in ("", "1.00x")]
