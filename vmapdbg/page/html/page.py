"""Makes the page of a view: one run, or two runs with each part as a pair (before, after)."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from io import StringIO
from itertools import product
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console

from vmapdbg.lint import RULES
from vmapdbg.model.capture import Finding
from vmapdbg.model.schedule_index import find_distinct, kernel_identity
from vmapdbg.model.wording import format_plural, inflect
from vmapdbg.page import format as formats
from vmapdbg.page.functions import FunctionRow, count_functions
from vmapdbg.page.graph.dot import clean_text
from vmapdbg.page.html.drawing import draw_view
from vmapdbg.page.html.kernels import merge_findings, view_kernels
from vmapdbg.page.html.nodes import Explainer, Texts
from vmapdbg.page.html.source import SourceFile, SourceView, collect_notes, view_files
from vmapdbg.page.lifetimes import Picture
from vmapdbg.page.overview import group_kernels, sum_kernels
from vmapdbg.page.sections import SECTIONS, load_section
from vmapdbg.page.text.kernels import TITLES
from vmapdbg.page.text.layout import Page
from vmapdbg.page.text.memory import add_memory
from vmapdbg.page.text.overview import Overview
from vmapdbg.page.text.view import MARKS, RunView, ScheduleView
from vmapdbg.page.view import View

_DRAWN_SECTIONS = frozenset({"ranges", "vmap", "bufferize", "kernels", "source"})
"""The sections that the page draws in its own way, in its panels. Other sections are shown as text."""
_TEXT_WIDTH = 160


def render_report(
    view: View, files: Sequence[SourceFile], made: str = "", files_before: Sequence[SourceFile] = ()
) -> str:
    """Returns a view as one HTML document that loads nothing; `made` says when and from what it is made."""
    report = Report(view, files, files_before)
    known = {"formats": _FILTERS, "marks": MARKS, "words": TITLES, "compare_totals": formats.compare_totals}
    folder = resources.files("vmapdbg.page.html")
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    # load nothing, and use only our script and style
    sources = f"style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    loader = PackageLoader("vmapdbg.page.html", "")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_clean, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= _FILTERS  # pyright: ignore[reportUnknownMemberType]
    return environment.get_template("page.html.jinja").render(
        known,
        report=report,
        title=" -> ".join(dict.fromkeys((view.before.snippet, view.after.snippet))),
        sides=_describe_sides(view),
        made=made,
        policy=f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        # no `<` can end the script element
        data=Markup(json.dumps(report.make_data(), separators=(",", ":")).replace("<", "\\u003c")),
    )


def _clean(value: Any) -> Any:
    """Escapes what a document cannot hold, and what would turn a line around."""
    return clean_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_FILTERS: dict[str, Callable[..., str]] = {
    "bytes": formats.format_bytes,
    "round": formats.round_count,
    "seconds": formats.format_seconds,
    "count": formats.format_count,
    "share": formats.format_share,
    "ratio": formats.format_ratio,
    "plural": format_plural,
    "inflect": inflect,
}


def _describe_sides(view: View) -> list[tuple[str, str]]:
    """The name of each side, or of both, and what is said of it: its target, tinygrad and patches."""
    if view.is_pair:
        compared = formats.compare_sides(view.diff.before, view.diff.after)
        return [(name, ", ".join(labels)) for name, labels in compared.items() if labels]
    _, *labels = formats.label_side(view.after)
    patches = view.after.patches
    return [("", ", ".join([*labels, *formats.label_patches(patches, dict.fromkeys(patches, True))]))]


class Report:
    """What the template asks for about a view."""

    def __init__(self, view: View, files: Sequence[SourceFile], files_before: Sequence[SourceFile]) -> None:
        self.view, self.is_pair, self.before, self.after = view, view.is_pair, view.before, view.after
        rows = sorted(group_kernels(view, unchanged=True), key=lambda row: view.is_pair and not row.is_changed)
        self.changed = sum(row.is_changed for row in rows)
        self.cost = sum_kernels(view.after)
        self.is_timed = any(row.is_timed for row in rows)
        self.explainer = Explainer(view)
        self.drawings, self.undrawn = draw_view(view, rows, self.explainer.name)
        self.explainer.choose(rows, [name for drawing in self.drawings for name in drawing.list_nodes()])
        self.kernels = list(view_kernels(view, rows, self.explainer.name))
        self.notes = collect_notes(view)
        self.places = formats.Places(self.notes, view.after.snippet)
        self.page = Page(Console(file=StringIO(), width=_TEXT_WIDTH, color_system=None), self.places)
        snippets = view.before.snippet, view.after.snippet
        self.sources = list(view_files(files_before or files, files, self.notes, snippets))
        self.functions = [] if view.is_pair else count_functions(view.after)
        self.rule_names = {rule.code: rule.name for rule in RULES}

    # *** for the template

    def title_of(self, source: SourceView) -> str:
        """The names of a file, as its lines have them."""
        return " -> ".join(self.places.format(f"{name}:1").removesuffix(":1") for name in source.names)

    def line_number(self, line: str | None) -> int | None:
        """The number in the page of a line of either side."""
        note = self.notes.get(line or "") or self.notes.get(self.view.name_line(line or ""))
        return note and note.number

    def rows_of(self, function: FunctionRow) -> str:
        """The numbers of the rows with the kernels of a function."""
        programs = function.cost.programs
        return " ".join(str(n) for n, one in enumerate(self.kernels) if kernel_identity(one.row.kernel) in programs)

    def node_of(self, finding: Finding) -> str:
        """The name of a finding's node, nothing if the page does not explain it."""
        name = f"{finding.schedule}:{finding.node}"
        return "" if self.is_pair or name not in self.explainer.nodes else name

    def list_errors(self) -> list[tuple[str, Any]]:
        """The errors that ended a run, with the name of its side."""
        sides = {"before: ": self.before.error, "after: ": self.after.error} if self.is_pair else {"": self.after.error}
        return [(name, error) for name, error in sides.items() if error is not None]

    def list_findings(self) -> list[tuple[str, list[tuple[Finding, int]]]]:
        """The findings of one run; of two runs the `new` and the `gone` findings. Each has its count."""
        if not self.is_pair:
            return [("", merge_findings(self.after.findings))]
        diff = self.view.diff
        return [("new", merge_findings(diff.findings_new)), ("gone", merge_findings(diff.findings_gone))]

    def count_schedules(self) -> int:
        """Returns how many different schedules one run has, or how many schedules changed between two."""
        changed = sum(not pair.is_empty for pair in self.view.schedules)
        return changed if self.is_pair else len(find_distinct(self.after))

    def list_sections(self) -> Iterator[tuple[str, str]]:
        """Yields title and text of each part without a drawing: of the overview, then of each schedule."""
        overview = Overview(self.view, self.page)
        overview.add_lines() if self.is_pair else overview.add_methods()  # the lines of one run are in its tree
        yield f"What {'lines' if self.is_pair else 'methods of Tensor'} cost", self._take_text()
        overview.add_rules()
        yield "Why there are buffers", self._take_text()
        run = RunView(self.page, self.view.comparison or self.after)
        names = [name for name in SECTIONS if name not in _DRAWN_SECTIONS]
        for name, pair in product(names, self.view.schedules):
            load_section(name)(ScheduleView(run, pair))
            yield f"{name} of schedule {pair.index}", self._take_text()

    def draw_memory(self) -> Markup:
        """Returns the lifetime picture as SVG; nothing if the memory was not watched."""
        memory = self.after.memory
        return Markup(Picture(memory, self.places).draw_svg() if memory is not None else "")

    def describe_memory(self) -> str:
        """Returns what the memory of the run is made of."""
        add_memory(self.after, self.page, draws=False)
        return self._take_text()

    def _take_text(self) -> str:
        text = "\n".join(line.plain for line in self.page.lines).strip("\n")
        self.page.lines = []
        return text

    # *** for the script

    def make_data(self) -> dict[str, Any]:
        texts, kernels = Texts(), list[list[Any]]()
        for shown in self.kernels:
            lines = [number for line in shown.row.lines if (number := self.line_number(line)) is not None]
            row, kernel, name = shown.row, shown.row.kernel, clean_text(shown.name or "(failed)")
            steps, title = self.explainer.explain_row(row, texts), clean_text(kernel.title)
            kernels.append([name, lines, *steps, title, row.after.amounts])
        nodes = self.explainer.describe_nodes({line: note.number for line, note in self.notes.items()}, texts)
        places = [[clean_text(self.places.format(line)), clean_text(line)] for line in self.notes]
        return {"lines": places, "kernels": kernels, "nodes": nodes, "texts": list(map(clean_text, texts.numbers))}
