"""Makes the page of a view: one run, or two runs with each part as a pair (before, after).

A page of several states of the patches has switches, which choose the state that is shown. What is equal in two states
is in such a page once: the whole page if their schedules are equal, else each line of HTML and each entry of the data.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from io import StringIO
from itertools import product
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from rich.console import Console

from vmapdbg.install.patches import PATCHES, PatchState
from vmapdbg.lint import RULES
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.schedule_index import find_distinct, kernel_identity
from vmapdbg.model.wording import format_plural, inflect
from vmapdbg.page.format import (
    Places,
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    label_patches,
    round_count,
)
from vmapdbg.page.graph.dot import clean_text
from vmapdbg.page.html.drawing import draw_view
from vmapdbg.page.html.kernels import WORDS, KernelView, merge_findings, view_kernels
from vmapdbg.page.html.nodes import Explainer, Once
from vmapdbg.page.html.source import SourceFile, SourceView, collect_notes, view_files
from vmapdbg.page.overview import (
    CostRow,
    KernelRow,
    RuleRow,
    count_methods,
    count_rules,
    describe_outcomes,
    group_kernels,
    sum_kernels,
)
from vmapdbg.page.sections import SECTIONS, load_section
from vmapdbg.page.text.layout import Page
from vmapdbg.page.text.view import MARKS, RunView, ScheduleView
from vmapdbg.page.view import View

_PARTS = "parts"
"""The key of the lines of HTML in the data of a page with switches. The script puts them into the page."""
_DRAWN_SECTIONS = frozenset({"ranges", "vmap", "bufferize", "kernels", "source"})
"""The sections that the page draws in its own way, in its panels. Other sections are shown as text."""
_TEXT_WIDTH = 160
_ENDING = re.compile(r"<(?=[!?]|/?script)", flags=re.I)


def render_report(
    view: View, files: Sequence[SourceFile], made: str = "", files_before: Sequence[SourceFile] = ()
) -> str:
    """Returns a view as one HTML document that loads nothing.

    `files` are the user's, as `read_sources` returns them; of two runs `files_before` are those of before. `made` says
    when and from what the report is made.
    """
    report, texts = Report(view, files, files_before), Once()
    data = {**report.make_data(texts), "texts": list(map(clean_text, texts.values))}
    overview, main = _fill_parts(report)
    return _fill_page(view, data, made, overview=Markup(overview), main=Markup(main))


def _fill_parts(report: Report, has_switches: bool = False) -> tuple[str, str]:
    """Returns the overview and the panels of a page as HTML. With switches, these say which patches are on."""
    known = {"format_share": format_share, "formats": _NUMBERS, "ratio": _ratio, "marks": MARKS, "words": WORDS}
    template = _load_template("parts.html.jinja")
    parts = template.make_module({"report": report, "has_switches": has_switches, **known})
    return parts.overview(), parts.main()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def _fill_page(view: View, data: Mapping[str, Any], made: str, **values: Any) -> str:
    """Returns the page with `data` for the script, and with `values`: its `overview` and `main`, or its `switches`."""
    folder = resources.files("vmapdbg.page.html")
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    # nothing is loaded, and only our script and style are used
    sources = f"style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    return _load_template("page.html.jinja").render(
        {"overview": "", "main": "", "switches": ()} | values,
        title=" -> ".join(dict.fromkeys((view.before.snippet, view.after.snippet))),
        sides=_describe_sides(view),
        made=made,
        policy=f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=Markup(_dump(data)),
    )


def _load_template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("vmapdbg.page.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS  # pyright: ignore[reportUnknownMemberType]
    return environment.get_template(name)


def _clean(value: Any) -> Any:
    """Escapes what a document cannot hold, and what would turn a line around."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean_text(value)
    return value


def _dump(data: Any) -> str:
    """JSON for a `script` element: no `<` can end it."""
    plain = {name: value for name, value in data.items() if name != _PARTS}
    dumped = json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")
    if _PARTS not in data:
        return dumped
    # the parts have thousands of tags, none of them a script or a comment
    parts = _ENDING.sub(lambda match: match[0].replace("<", "\\u003c"), json.dumps(data[_PARTS], separators=(",", ":")))
    return f'{dumped[:-1]},"{_PARTS}":{parts}}}'


_NUMBERS: dict[str, Callable[[Any], str]] = {"bytes": format_bytes, "round": round_count, "seconds": format_seconds}
_FILTERS: dict[str, Callable[..., str]] = {
    **_NUMBERS,
    "count": format_count,
    "plural": format_plural,
    "inflect": inflect,
}


def _ratio(before: float, after: float) -> str:
    """Returns `0.85x`, nothing if a side is 0 or both are equal."""
    if before <= 0 or after <= 0 or before == after:
        return ""
    return f"{after / before:.2f}x"


def _describe_sides(view: View) -> list[tuple[str, str]]:
    """The name of each side, and its target, tinygrad and patches."""
    if not view.is_pair:
        versions = view.after.versions
        tinygrad = f"tinygrad {versions.tree or versions.tinygrad}"
        if view.after.mode == "observe":
            tinygrad += ", observed as it is"
        return [("", f"{view.after.target}, {tinygrad}, Python {versions.python}, vmapdbg {versions.vmapdbg}")]
    before, after = view.diff.before, view.diff.after
    words: list[tuple[str, str]] = []
    for name, one, other in (("before", before, after), ("after", after, before)):
        parts = [one.name, one.snippet, one.target, f"tinygrad {one.versions.tree or one.versions.tinygrad}"]
        if one.snippet == other.snippet:
            parts.remove(one.snippet)
        words.append((name, ", ".join(filter(None, [*parts, *label_patches(one.patches, other.patches)]))))
    return words


class Report:
    """What the template asks for about a view. `number` numbers a row of kernels; by default they are counted."""

    def __init__(
        self,
        view: View,
        files: Sequence[SourceFile],
        files_before: Sequence[SourceFile] = (),
        number: Callable[[KernelRow], int] | None = None,
    ) -> None:
        self.view = view
        self.is_pair = view.is_pair
        self.before, self.after = view.before, view.after
        rows = sorted(group_kernels(view, unchanged=True), key=lambda row: view.is_pair and not row.is_changed)
        self.changed = sum(row.is_changed for row in rows)
        self.programs = list(range(len(rows)))
        if number is not None:
            self.programs = list(map(number, rows))
        numbered = list(zip(self.programs, rows, strict=True))
        self.cost = sum_kernels(view.after)
        self.is_timed = any(row.is_timed for row in rows)
        self.is_predicted = not view.is_pair and any(row.kernel.predicted is not None for row in rows)
        self.explainer = Explainer(view)
        self.drawings, self.undrawn = draw_view(view, numbered, self.explainer.name)
        self.explainer.choose(numbered, [name for drawing in self.drawings for name in drawing.list_nodes()])
        self.kernels: list[KernelView] = view_kernels(view, numbered, self.explainer.name)
        self.notes = collect_notes(view, self.explainer.nodes)
        self.places = Places(self.notes, view.after.snippet)
        snippets = view.before.snippet, view.after.snippet
        self.sources: list[SourceView] = view_files(files_before or files, files, self.notes, snippets)
        self.rules: list[RuleRow] = count_rules(view)
        self.methods: list[CostRow] = []
        self.outcomes: list[str] = []
        if not view.is_pair:
            self.methods = count_methods(view)
            self.outcomes = describe_outcomes(view.after)
        self.rule_names = {rule.code: rule.name for rule in RULES}

    # *** for the template

    def title_of(self, source: SourceView) -> str:
        """The names of a file, as its lines have them."""
        return " -> ".join(self.places.format(f"{name}:1").removesuffix(":1") for name in source.names)

    def line_number(self, line: str | None) -> int | None:
        """The number in the page of a line of either side."""
        note = self.notes.get(line or "") or self.notes.get(self.view.name_line(line or ""))
        return note and note.number

    def node_of(self, finding: Finding) -> str:
        """The name of a finding's node, nothing if the page does not explain it."""
        name = f"{finding.schedule}:{finding.node}"
        if self.is_pair or name not in self.explainer.nodes:
            return ""
        return name

    def list_errors(self) -> list[tuple[str, Any]]:
        """The errors that ended a run, with the name of its side."""
        sides = [("before: ", self.before.error), ("after: ", self.after.error)]
        if not self.is_pair:
            sides = [("", self.after.error)]
        return [(name, error) for name, error in sides if error is not None]

    def list_findings(self) -> list[tuple[str, list[tuple[Finding, int]]]]:
        """The findings of one run; of two runs the `new` and the `gone` findings. Each has its count."""
        if not self.is_pair:
            return [("", merge_findings(self.after.findings))]
        diff = self.view.diff
        return [("new", merge_findings(diff.findings_new)), ("gone", merge_findings(diff.findings_gone))]

    def list_totals(self) -> list[tuple[str, str, str, str]]:
        """The sums of two runs: a name, before, after, and the ratio."""
        one, other = sum_kernels(self.before), self.cost
        held = self.view.diff.before.totals.buffer_bytes, self.view.diff.after.totals.buffer_bytes
        rows = [
            ("kernels", f"{one.kernels:,}", f"{other.kernels:,}", ""),
            ("ops", round_count(one.ops), round_count(other.ops), _ratio(one.ops, other.ops)),
            ("moved", format_bytes(one.bytes), format_bytes(other.bytes), _ratio(one.bytes, other.bytes)),
            ("in buffers", format_bytes(held[0]), format_bytes(held[1]), _ratio(*held)),
        ]
        if one.seconds and other.seconds:
            times = format_seconds(one.seconds), format_seconds(other.seconds)
            rows.append(("in kernels", *times, _ratio(one.seconds, other.seconds)))
        return rows

    def count_schedules(self) -> int:
        """Returns how many different schedules one run has, or how many schedules changed between two."""
        if self.is_pair:
            return sum(not pair.is_empty for pair in self.view.schedules)
        return len(find_distinct(self.after))

    def list_sections(self) -> Iterator[tuple[str, str]]:
        """Yields the title and the text of each section without a drawing of its own, for each schedule."""
        page = Page(Console(file=StringIO(), width=_TEXT_WIDTH, color_system=None), self.places)
        run = RunView(page, capture=self.after, diff=None)
        if self.is_pair:
            run = RunView(page, capture=None, diff=self.view.diff)
        names = [name for name in SECTIONS if name not in _DRAWN_SECTIONS]
        for name, pair in product(names, self.view.schedules):
            load_section(name)(ScheduleView(run, pair))
            text = "\n".join(line.plain for line in page.lines).strip("\n")
            page.lines = []
            if text:
                yield f"{name} of schedule {pair.index}", text

    # *** for the script

    def make_data(self, texts: Once) -> dict[str, Any]:
        kernels: list[list[Any]] = []
        for shown in self.kernels:
            lines = [number for line in shown.row.lines if (number := self.line_number(line)) is not None]
            kernels.append([clean_text(shown.name or "(failed)"), lines, *self.explainer.explain_row(shown.row, texts)])
        nodes = self.explainer.describe_nodes({line: note.number for line, note in self.notes.items()}, texts)
        places = [[clean_text(self.places.format(line)), clean_text(line)] for line in self.notes]
        return {"lines": places, "kernels": kernels, "nodes": nodes}


# *** several states of the patches


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
    pages: list[Capture] = []
    shown: list[int] = []
    for _, capture in states:
        # the switches show which patches are on
        number = next((n for n, known in enumerate(pages) if _list_shown(known) == _list_shown(capture)), len(pages))
        if number == len(pages):
            pages.append(capture)
        shown.append(number)
    summaries = {patch.name: patch.summary for patch in PATCHES}
    switches: list[Switch] = []
    for number, (state, capture) in enumerate(states[1:], start=1):
        says, failed = "nothing changes", capture.error is not None
        if failed or shown[number] != shown[0]:
            says = _compare_states(states[0][1], capture)
        if state.off:
            switches.append(Switch(state.off, summaries[state.off], 0, number, f"without it {says}", failed))
        else:
            switches.append(Switch("none", "No patch on", number, 0, says, failed))
    # the switches of single patches come first
    switches.sort(key=lambda switch: switch.on != 0)
    described: list[list[Any]] = []
    for number, (state, capture) in enumerate(states):
        said = f"Shown: {state.words}, {format_plural(len(capture.kernels), 'kernel')}"
        if capture.error is not None:
            said += f", ended by {clean_text(capture.error.type)}"
        # whether each switch is checked while the state is shown
        on = [number == each.on if each.on else bool(state.patches) and number != each.off for each in switches]
        described.append([shown[number], said, on])
    data = {"states": described, **_make_pages(pages, files)}
    return _fill_page(View.of_one(states[0][1]), data, made, switches=switches)


def _list_shown(capture: Capture) -> object:
    return capture.schedules, capture.error, capture.findings, capture.missing


def _compare_states(first: Capture, capture: Capture) -> str:
    """What a state changes, compared with the first."""
    if capture.error is not None:
        return clean_text(capture.error.type)
    before, after = sum_kernels(first), sum_kernels(capture)
    count, more = format_plural(after.kernels, "kernel"), after.kernels - before.kernels
    if Counter(map(kernel_identity, first.kernels)) == Counter(map(kernel_identity, capture.kernels)):
        # the times differ, but by chance
        return f"the same {count}"
    said = [count]
    if more:
        said = [f"{count} ({more:+,})"]
    for what, name in (("ops", "ops"), ("bytes", "bytes"), ("time", "seconds")):
        times = _ratio(getattr(before, name), getattr(after, name))
        if times not in ("", "1.00x"):
            said.append(f"{times} {what}")
    if len(first.findings) != len(capture.findings):
        said.append(format_plural(len(capture.findings), "finding"))
    return ", ".join(said)


def _make_pages(captures: Sequence[Capture], files: Sequence[SourceFile]) -> dict[str, Any]:
    """Returns the parts and the data of several pages, with what is equal in them once."""
    texts, parts, rows = Once(), Once(), Once()
    # a program has one number in all states, so that pieces that name it are equal
    programs: dict[tuple[str, str], int] = {}

    def number(row: KernelRow) -> int:
        return programs.setdefault((kernel_identity(row.kernel), row.kernel.name), len(programs))

    pages: list[dict[str, Any]] = []
    for capture in captures:
        report = Report(View.of_one(capture), files, number=number)
        overview, main = _fill_parts(report, has_switches=True)
        data = report.make_data(texts)
        page = {
            "overview": list(map(parts.number, overview.split("\n"))),
            "main": list(map(parts.number, main.split("\n"))),
            "lines": list(map(rows.number, data["lines"])),
            "numbers": report.programs,
            "kernels": list(map(rows.number, data["kernels"])),
            "nodes": {key: rows.number(node) for key, node in data["nodes"].items()},
        }
        pages.append(page)
    written = list(map(clean_text, texts.values))
    return {"pages": pages, _PARTS: parts.values, "rows": rows.values, "texts": written}
