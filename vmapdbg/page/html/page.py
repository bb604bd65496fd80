"""Makes the page of a view: one run, or two runs with each part as a pair (before, after)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from io import StringIO
from itertools import product
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from rich.console import Console

from vmapdbg.lint import RULES
from vmapdbg.model.capture import Finding
from vmapdbg.model.schedule_index import find_distinct
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
from vmapdbg.page.html.kernels import KernelView, merge_findings, view_kernels
from vmapdbg.page.html.nodes import Explainer, Texts
from vmapdbg.page.html.source import SourceFile, SourceView, collect_notes, view_files
from vmapdbg.page.overview import (
    Cost,
    CostRow,
    KernelRow,
    RuleRow,
    count_methods,
    count_outcomes,
    count_rules,
    count_unsplit,
    group_kernels,
    sum_kernels,
)
from vmapdbg.page.sections import SECTIONS, load_section
from vmapdbg.page.sentences import say_left_whole
from vmapdbg.page.text.layout import Page
from vmapdbg.page.text.view import RunView, ScheduleView
from vmapdbg.page.view import View

PARTS = "parts"
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
    report, texts = Report(view, files, files_before), Texts()
    data = {**report.make_data(texts), "texts": texts.list_all()}
    overview, main = fill_parts(report)
    return fill_page(view, data, made, overview=Markup(overview), main=Markup(main))


def fill_parts(report: Report, has_switches: bool = False) -> tuple[str, str]:
    """Returns the overview and the panels of a page as HTML. With switches, these say which patches are on."""
    parts = _load_template("parts.html.jinja").make_module(
        {"report": report, "has_switches": has_switches, "format_share": format_share, "ratio": ratio}
    )
    return parts.overview(), parts.main()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def fill_page(view: View, data: Mapping[str, Any], made: str, **values: Any) -> str:
    """Returns the page with `data` for the script, and with `values`: its `overview` and `main`, or its `switches`."""
    style, script = _read("page.css"), _read("page.js")
    return _load_template("page.html.jinja").render(
        {"overview": "", "main": "", "switches": ()} | values,
        title=" -> ".join(dict.fromkeys((view.before.snippet, view.after.snippet))),
        sides=_describe_sides(view),
        made=made,
        policy=_make_policy(style, script),
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


def _read(name: str) -> str:
    return resources.files("vmapdbg.page.html").joinpath(name).read_text(encoding="utf-8")


def _clean(value: Any) -> Any:
    """Escapes what a document cannot hold, and what would turn a line around."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean_text(value)
    return value


def _make_policy(style: str, script: str) -> str:
    """A Content-Security-Policy: nothing is loaded, and only our script and style are used."""
    sources = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _dump(data: Any) -> str:
    """JSON for a `script` element: no `<` can end it."""
    plain = {name: value for name, value in data.items() if name != PARTS}
    dumped = json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")
    if PARTS not in data:
        return dumped
    # the parts have thousands of tags, none of them a script or a comment
    parts = _ENDING.sub(lambda match: match[0].replace("<", "\\u003c"), json.dumps(data[PARTS], separators=(",", ":")))
    return f'{dumped[:-1]},"{PARTS}":{parts}}}'


def _write_as(value: Any, kind: str) -> str:
    return _NUMBERS[kind](value)


_NUMBERS: dict[str, Callable[[Any], str]] = {"bytes": format_bytes, "round": round_count, "seconds": format_seconds}
_FILTERS: dict[str, Callable[..., str]] = {
    **_NUMBERS,
    "count": format_count,
    "plural": format_plural,
    "inflect": inflect,
    "write_as": _write_as,
}


def ratio(before: float, after: float) -> str:
    """Returns `0.85x`, nothing if a side is 0 or both are equal."""
    if before <= 0 or after <= 0 or before == after:
        return ""
    return f"{after / before:.2f}x"


def _describe_sides(view: View) -> list[tuple[str, str]]:
    """The name of each side, and its target, tinygrad and patches."""
    if not view.is_pair:
        versions = view.after.versions
        observed = ", observed as it is" if view.after.mode == "observe" else ""
        tinygrad = f"tinygrad {versions.tree or versions.tinygrad}{observed}"
        return [("", f"{view.after.target}, {tinygrad}, Python {versions.python}, vmapdbg {versions.vmapdbg}")]
    before, after = view.diff.before, view.diff.after
    words: list[tuple[str, str]] = []
    for name, one, other in (("before", before, after), ("after", after, before)):
        parts = [one.name] if one.name else []
        if one.snippet != other.snippet:
            parts.append(one.snippet)
        parts += [one.target, f"tinygrad {one.versions.tree or one.versions.tinygrad}"]
        parts += label_patches(one.patches, other.patches)
        words.append((name, ", ".join(parts)))
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
        self.programs = [each if number is None else number(row) for each, row in enumerate(rows)]
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
        self.methods: list[CostRow] = [] if view.is_pair else count_methods(view)
        self.rule_names = {rule.code: rule.name for rule in RULES}

    # *** for the template

    def place(self, line: str | None) -> str:
        return self.places.format(line)

    def title_of(self, source: SourceView) -> str:
        """The names of a file, as its lines have them."""
        return " -> ".join(self.places.format(f"{name}:1").removesuffix(":1") for name in source.names)

    def line_number(self, line: str | None) -> int | None:
        """The number in the page of a line of either side."""
        note = self.notes.get(line or "") or self.notes.get(self.view.name_line(line or ""))
        return None if note is None else note.number

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
        new, gone = self.view.diff.findings_new, self.view.diff.findings_gone
        return [("new", merge_findings(new)), ("gone", merge_findings(gone))]

    def list_totals(self) -> list[tuple[str, str, str, str]]:
        """The sums of two runs: a name, before, after, and the ratio."""
        one, other = sum_kernels(self.before), self.cost
        held = self.view.diff.before.totals.buffer_bytes, self.view.diff.after.totals.buffer_bytes
        rows = [
            ("kernels", f"{one.kernels:,}", f"{other.kernels:,}", ""),
            ("ops", round_count(one.ops), round_count(other.ops), ratio(one.ops, other.ops)),
            ("moved", format_bytes(one.bytes), format_bytes(other.bytes), ratio(one.bytes, other.bytes)),
            ("in buffers", format_bytes(held[0]), format_bytes(held[1]), ratio(*held)),
        ]
        if one.seconds and other.seconds:
            times = format_seconds(one.seconds), format_seconds(other.seconds)
            rows.append(("in kernels", *times, ratio(one.seconds, other.seconds)))
        return rows

    def count_schedules(self) -> int:
        """Returns how many different schedules one run has, or how many schedules changed between two."""
        if self.is_pair:
            return sum(not pair.is_empty for pair in self.view.schedules)
        return len(find_distinct(self.after))

    def list_outcomes(self) -> list[str]:
        """How many buffers were kept and removed, by which rules."""
        if self.is_pair:
            return []
        counts: Counter[str] = Counter()
        named: dict[str, list[str]] = {}
        for (outcome, rule), count in count_outcomes(self.after).items():
            counts[outcome] += count
            named.setdefault(outcome, []).append(f"{count:,} {rule}")
        lines = [f"{counts[outcome]:,} buffers {outcome}: {', '.join(rules)}" for outcome, rules in named.items()]
        return lines + [say_left_whole(count.rule, count.nodes) for count in count_unsplit(self.after)]

    def list_sections(self) -> Iterator[tuple[str, str]]:
        """Yields the title and the text of each section without a drawing of its own, for each schedule."""
        page = Page(Console(file=StringIO(), width=_TEXT_WIDTH, color_system=None), self.places)
        run = RunView(page, capture=None if self.is_pair else self.after, diff=self.view.comparison)
        names = [name for name in SECTIONS if name not in _DRAWN_SECTIONS]
        for name, pair in product(names, self.view.schedules):
            load_section(name)(ScheduleView(run, pair))
            text = "\n".join(line.plain for line in page.lines).strip("\n")
            page.lines = []
            if text:
                yield f"{name} of schedule {pair.index}", text

    def cost_of(self, row: KernelRow) -> Cost:
        """The sums of a row that is on one side only."""
        return row.after if row.change.after else row.before

    # *** for the script

    def make_data(self, texts: Texts) -> dict[str, Any]:
        numbers = {line: note.number for line, note in self.notes.items()}
        kernels = [self._describe_kernel(shown, texts) for shown in self.kernels]
        nodes = self.explainer.describe_nodes(numbers, texts)
        lines = [[clean_text(self.place(line)), clean_text(line)] for line in self.notes]
        return {"lines": lines, "kernels": kernels, "nodes": nodes}

    def _describe_kernel(self, shown: KernelView, texts: Texts) -> list[Any]:
        title, steps = self.explainer.explain_row(shown.row, texts)
        lines = [number for line in shown.row.lines if (number := self.line_number(line)) is not None]
        return [clean_text(shown.name or "(failed)"), lines, title, steps]
