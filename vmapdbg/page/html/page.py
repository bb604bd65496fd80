"""Puts a report together."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vmapdbg.lint import RULES
from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.schedule_index import find_distinct, index_of
from vmapdbg.model.wording import format_plural, inflect
from vmapdbg.page.format import Places, format_bytes, format_count, format_seconds, format_share, round_count
from vmapdbg.page.graph.dot import clean_text
from vmapdbg.page.html.graph import draw_schedule, find_drawn_nodes
from vmapdbg.page.html.kernels import KernelView, merge_findings, view_kernels
from vmapdbg.page.html.lines import LineNotes, SourceView, collect_notes, list_lines, view_source
from vmapdbg.page.html.nodes import (
    NodeKey,
    Texts,
    describe_nodes,
    explain_group,
    find_nodes,
    find_telling,
    name_node,
)
from vmapdbg.page.html.pictures import Drawing, Picture
from vmapdbg.page.html.sources import SourceFile
from vmapdbg.page.overview import (
    Cost,
    CostRow,
    KernelRow,
    RuleCount,
    count_methods,
    count_outcomes,
    count_rules,
    count_unsplit,
    group_kernels,
    sum_kernels,
)
from vmapdbg.page.sentences import say_left_whole
from vmapdbg.page.view import View

PARTS = "parts"
"""In the data of a page the pieces of it that the template made, for the script to put in."""
_ENDING = re.compile(r"<(?=[!?]|/?script)", flags=re.I)
_MOST_PICTURES = 6
"""So many different schedules are drawn, those with the most work."""


def render_report(capture: Capture, files: Sequence[SourceFile], made: str = "") -> str:
    """Returns a capture as one HTML document that loads nothing.

    `files` are the user's, as `read_sources` returns them; `made` says when and from what the report is.
    """
    report, texts = Report(capture, files), Texts()
    data = {**report.make_data(texts), "texts": texts.list_all()}
    return fill_template("page.html.jinja", report, data, capture=capture, made=made)


def fill_template(
    name: str, report: object, data: Mapping[str, Any], cut: str = "", frame: str = "", **values: object
) -> str:
    """Returns a template of this folder filled in. `data` is for the script, `report` what the template asks for.

    `frame` is put before and after what changes from state to state of the patches, and `cut` between parts of it that
    may be equal in two states.
    """
    style, script = _read("page.css"), _read("page.js")
    environment = Environment(
        loader=PackageLoader("vmapdbg.page.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS  # pyright: ignore[reportUnknownMemberType]
    return environment.get_template(name).render(
        report=report,
        policy=_make_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=Markup(_dump(data)),
        cut=Markup(cut),
        frame=Markup(frame),
        **values,
    )


def _read(name: str) -> str:
    return resources.files("vmapdbg.page.html").joinpath(name).read_text(encoding="utf-8")


def _clean(value: Any) -> Any:
    """What cannot be in a document, or would turn a line around, as an escape."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean_text(value)
    return value


def _make_policy(style: str, script: str) -> str:
    """Returns a Content-Security-Policy by which nothing is loaded, and no other script or style than ours counts."""
    sources = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _dump(data: Any) -> str:
    """Returns JSON that can stand in a `script` element: no `<` can end it."""
    plain = {name: value for name, value in data.items() if name != PARTS}
    dumped = json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")
    if PARTS not in data:
        return dumped
    # parts that the template made have thousands of tags; none of them is a script or a comment
    parts = _ENDING.sub(lambda match: match[0].replace("<", "\\u003c"), json.dumps(data[PARTS], separators=(",", ":")))
    return f'{dumped[:-1]},"{PARTS}":{parts}}}'


_FILTERS = {
    "bytes": format_bytes,
    "count": format_count,
    "round": round_count,
    "seconds": format_seconds,
    "plural": format_plural,
    "inflect": inflect,
    "node": name_node,
}


class Report:
    """What the template asks for about a capture. `number` says what a program is called in the page; by default they
    are counted."""

    def __init__(
        self, capture: Capture, files: Sequence[SourceFile], number: Callable[[KernelRow], int] | None = None
    ) -> None:
        self.capture = capture
        self.groups: list[KernelRow] = group_kernels(View.of_one(capture))
        self.programs = [each if number is None else number(group) for each, group in enumerate(self.groups)]
        self.totals: Cost = sum_kernels(capture)
        self.is_predicted: bool = any(group.kernel.predicted is not None for group in self.groups)
        self.methods: list[CostRow] = count_methods(View.of_one(capture))
        self.kernels: list[KernelView] = view_kernels(self.groups, self.programs, capture)
        self.drawings, self.undrawn = self._draw()
        self.nodes = self._find_nodes()
        self.notes: dict[str, LineNotes] = collect_notes(capture, self.nodes)
        self.places = Places(list_lines(capture), capture.snippet)
        self.sources: list[SourceView] = [view_source(file, self.notes.values()) for file in files]
        self.findings = merge_findings(capture.findings)
        self.rule_names = {rule.code: rule.name for rule in RULES}

    def _draw(self) -> tuple[list[Drawing], int]:
        again = find_distinct(self.capture)
        chosen = [s for s in self.capture.schedules if s.index in again and s.kernels]
        chosen.sort(key=lambda s: -sum(kernel.executed_ops for kernel in s.kernels))
        shown = chosen[:_MOST_PICTURES]

        def draw(schedule: Schedule) -> Picture:
            return draw_schedule(self.capture, schedule, self.groups, self.programs, len(again[schedule.index]))

        # each is laid out by a process of its own
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            drawn = [Drawing((picture,)) for picture in pool.map(draw, shown)]
        return drawn, len(chosen) - len(drawn)

    def _find_nodes(self) -> dict[NodeKey, list[int]]:
        nodes = find_nodes(zip(self.programs, self.groups, strict=True), self.capture)
        for key in find_telling(self.capture):
            nodes.setdefault(key, [])
        for drawing in self.drawings:
            for key in find_drawn_nodes(drawing.pictures[0].svg):
                nodes.setdefault(key, [])
        known = (key for key in nodes if index_of(self.capture.schedules[key[0]]).node(key[1]) is not None)
        return {key: nodes[key] for key in known}

    # *** for the template

    def share(self, part: float, whole: float) -> str:
        return format_share(part, whole)

    def width(self, part: float, whole: float) -> int:
        """A part in per cent, for a bar."""
        return round(100 * part / whole) if whole else 0

    def place(self, line: str | None) -> str:
        return self.places.format(line)

    def file(self, name: str) -> str:
        """A file by the name that its lines have."""
        return self.places.format(f"{name}:1").removesuffix(":1")

    def has_node(self, finding: Finding) -> bool:
        """Whether the page explains the node of a finding."""
        return (finding.schedule, finding.node) in self.nodes

    def count_distinct(self) -> int:
        return len(find_distinct(self.capture))

    def list_rules(self) -> list[RuleCount]:
        return [row.after for row in count_rules(View.of_one(self.capture))]

    def list_outcomes(self) -> list[str]:
        counts: Counter[str] = Counter()
        named: dict[str, list[str]] = {}
        for (outcome, rule), count in count_outcomes(self.capture).items():
            counts[outcome] += count
            named.setdefault(outcome, []).append(f"{count:,} {rule}")
        said = [f"{counts[outcome]:,} buffers {outcome}: {', '.join(rules)}" for outcome, rules in named.items()]
        return said + [say_left_whole(count.rule, count.nodes) for count in count_unsplit(self.capture)]

    # *** for the script

    def make_data(self, texts: Texts) -> dict[str, Any]:
        numbers = {line: note.number for line, note in self.notes.items()}
        kernels = [self._describe_kernel(view, texts) for view in self.kernels]
        nodes = describe_nodes(self.nodes, self.capture, numbers, texts)
        lines = [[clean_text(self.place(line)), clean_text(line)] for line in self.notes]
        return {"lines": lines, "kernels": kernels, "nodes": nodes}

    def _describe_kernel(self, view: KernelView, texts: Texts) -> list[Any]:
        title, steps = explain_group(view.group, self.capture, texts)
        lines = [self.notes[line].number for line in view.group.lines if line in self.notes]
        return [clean_text(view.group.kernel.name or "(failed)"), lines, title, steps]
