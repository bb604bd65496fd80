"""Findings as text: a block each with the user's line and the kernel's line, one line each, or a summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from vmapdbg.lint.ignores import find_line
from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.schedule_index import count_kernels, index_of
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.format import Places
from vmapdbg.page.text.layout import Page, escape_unsafe
from vmapdbg.page.text.view import ALERT

_INDENT = 4
_MOST_FAILURES = 3


@dataclass(frozen=True)
class Report:
    """What the views print. `titles` maps codes to the names of their rules; `ignored` counts the findings that a
    comment on the user's line took out."""

    capture: Capture
    findings: tuple[Finding, ...]
    ignored: int
    titles: Mapping[str, str]


def print_text(report: Report, console: Console) -> None:
    """Prints the report: how much was checked, then each finding with its source lines and what to try."""
    page, places = Page(console), Places.of(report.capture)
    lines = page.wrap(_format_headline(page, report), hang=2)
    for finding in report.findings:
        lines += [Text(), *format_finding(page, places, report, finding)]
    page.show(lines)


def print_concise(findings: Iterable[Finding], console: Console, snippet: str) -> None:
    """Prints `file:line: VD101 message`, one line each and never folded, for editors and grep."""
    for finding in findings:
        where = finding.line or snippet
        console.file.write(escape_unsafe(f"{where}: {finding.code} {finding.message}", console.encoding) + "\n")


def print_explanation(code: str, title: str, severity: str, explanation: str, console: Console) -> None:
    """Prints what a rule means, paragraph by paragraph, as wide as the page, at most 100 columns."""
    page = Page(console)
    page.width = min(page.width, 100)
    lines = page.wrap((code, "bold"), f"  {title} ({severity})")
    for paragraph in explanation.strip().split("\n\n"):
        lines += [Text(), *page.wrap(" ".join(paragraph.split()))]
    page.show(lines)


def _format_headline(page: Page, report: Report) -> Text:
    capture = report.capture
    kernels = count_kernels(capture.schedules)
    off = ", ".join(name for name, state in capture.patches.items() if not state)
    found, about = _count_findings(len(report.findings)), f" in {format_plural(kernels, 'kernel')}"
    if not kernels and not report.findings:
        found, about = ("no kernels to check", ALERT), ": the snippet created no schedule"
        if capture.schedules:
            about = f": {format_plural(len(capture.schedules), 'schedule')} without kernels"
    about += f", target {capture.target}"
    if off:
        about += f", patches off: {off}"
    if report.ignored:
        about += f", {report.ignored} ignored by comments"
    return page.join((capture.snippet, "bold"), "  ", found, about)


def _count_findings(count: int) -> tuple[str, str]:
    """Returns the number of findings, and its style."""
    if not count:
        return "no finding", "bold green"
    return format_plural(count, "finding"), ALERT


def format_finding(page: Page, places: Places, report: Report, finding: Finding) -> list[Text]:
    """Returns a finding as lines: place, code and title, then the message, both source lines, node, advice."""
    schedule = next((item for item in report.capture.schedules if item.index == finding.schedule), None)
    place = places.format(finding.line) or report.capture.snippet
    title = report.titles.get(finding.code, "")
    lines = page.wrap((place, "bold"), "  ", (finding.code, ALERT), f" {title}", hang=2)
    lines += page.wrap(finding.message, indent=_INDENT)
    lines += _quote(page, [("your line", find_line(finding.line, {}).strip()), _kernel_line(schedule, finding)])
    if about := _describe_place(schedule, finding):
        lines += page.wrap((about, "dim"), indent=_INDENT, hang=2)
    if finding.advice:
        lines += page.wrap(("try: ", "bold"), finding.advice, indent=_INDENT, hang=5)
    return lines


def _kernel_line(schedule: Schedule | None, finding: Finding) -> tuple[str, str | None]:
    kernel = schedule and index_of(schedule).kernel(finding.number)
    if kernel is None or finding.source_line is None:
        return "kernel", None
    lines = kernel.source.split("\n")
    title = f"{kernel.target}:{finding.source_line}"
    if not 0 < finding.source_line <= len(lines):
        return title, None
    return title, lines[finding.source_line - 1].strip()


def _quote(page: Page, quoted: Sequence[tuple[str, str | None]]) -> list[Text]:
    shown = [(label, text) for label, text in quoted if text]
    width = max((len(label) for label, _ in shown), default=0)
    lines: list[Text] = []
    for label, text in shown:
        lines += page.wrap((f"{label:>{width}} | ", "dim"), text, indent=_INDENT + 2, hang=min(width + 3, 12))
    return lines


def _describe_place(schedule: Schedule | None, finding: Finding) -> str:
    parts: list[str] = []
    if finding.node is not None:
        node = schedule and index_of(schedule).node(finding.node)
        op = format_known(" {}", node and node.op)
        parts.append(f"node {finding.node}{op}")
    if finding.schedule is not None:
        kernel = format_known("kernel #{} of ", finding.number)
        parts.append(f"{kernel}schedule {finding.schedule}")
    return ", ".join(parts)


# *** a whole program


def print_run(
    findings: Sequence[Finding], counts: str, failed: Mapping[str, int], titles: Mapping[str, str], console: Console
) -> None:
    """Prints what `run --lint` found: each finding in two or three lines, then how much was checked."""
    page = Page(console)
    lines: list[Text] = []
    for finding in findings:
        title = titles.get(finding.code, "")
        lines += page.wrap((finding.line or "?", "bold"), "  ", (finding.code, ALERT), f" {title}", hang=2)
        lines += page.wrap(finding.message, indent=_INDENT)
        lines += page.wrap(("try: ", "bold"), finding.advice, indent=_INDENT, hang=5)
    for reason, count in list(failed.items())[:_MOST_FAILURES]:
        sentence = f"{format_plural(count, 'schedule')} could not be checked: {reason.splitlines()[0][:200]}"
        lines += page.wrap((sentence, "yellow"), hang=2)
    lines += page.wrap("vmapdbg lint: ", _count_findings(len(findings)), f" in {counts}", hang=2)
    page.show(lines)
