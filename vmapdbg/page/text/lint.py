"""Findings as text (blocks with source lines, one line each, or a summary), GitHub workflow commands, SARIF 2.1.0."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vmapdbg import __version__
from vmapdbg.lint import RULES
from vmapdbg.lint.ignores import read_line
from vmapdbg.lint.rule import Rule
from vmapdbg.model.account import Account
from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import escape_unsafe, format_known, format_plural, split_place
from vmapdbg.page.claims import LINTED, account_of_linted, claim_clean, say_ended, say_left
from vmapdbg.page.format import Places
from vmapdbg.page.text.layout import ALERT, Page

if TYPE_CHECKING:
    from vmapdbg.page.documents import RunDocument

_TITLES = {rule.code: rule.name for rule in RULES}
_INDENT = 4
_MOST_FAILURES = 3


def print_text(capture: Capture, ignored: int, console: Console) -> None:
    """Prints how much was checked, then each finding with its lines and what to try. `ignored` counts excluded ones."""
    page = Page(console, Places.of(capture))
    _print_headline(page, capture, ignored)
    for finding in capture.findings:
        schedule = next((item for item in capture.schedules if item.index == finding.schedule), None)
        line = read_line(finding.line, capture.sources).strip()
        quoted = [("your line", line), _kernel_line(schedule, finding)]
        place = page.places.format(finding.line) or capture.snippet
        page.add()
        _print_finding(page, finding, place, quoted, _describe_place(schedule, finding))
    page.print()


def print_concise(findings: Iterable[Finding], console: Console, snippet: str) -> None:
    """Prints `file:line: VD101 message`, one line each and never folded, for editors and grep."""
    for finding in findings:
        where = finding.line or snippet
        console.file.write(escape_unsafe(f"{where}: {finding.code} {finding.message}", console.encoding) + "\n")


def print_explanation(code: str, title: str, severity: str, explanation: str, console: Console) -> None:
    """Prints what a rule means, paragraph by paragraph, as wide as the page, at most 100 columns."""
    page = Page(console)
    page.width = min(page.width, 100)
    page.add((code, "bold"), f"  {title} ({severity})", hang=0)
    for paragraph in explanation.strip().split("\n\n"):
        page.add(" ".join(paragraph.split()), hang=0, gap=True)
    page.print()


def _print_headline(page: Page, capture: Capture, ignored: int) -> None:
    kernels = len(capture.kernels)
    account = account_of_linted(capture)
    ended = say_ended(capture)
    found = _count_findings(len(capture.findings), kernels, account, ended)
    about = f" in {format_plural(kernels, 'kernel')}"
    if not kernels and not capture.findings:
        about = ": the snippet created no schedule"
        if capture.schedules:
            about = f": {format_plural(len(capture.schedules), 'schedule')} without kernels"
    about += format_known(", {}", ended) + f", target {capture.target}"
    about += format_known(", patches off: {}", capture.patches_off)
    if ignored:
        about += f", {ignored} ignored by comments"
    page.add((capture.snippet, "bold"), "  ", found, about, (say_left(LINTED, account.left), "yellow"))


def _count_findings(count: int, kernels: int, account: Account, ended: str = "") -> tuple[str, str]:
    if count:
        return format_plural(count, "finding"), ALERT
    return claim_clean(account, ended) if kernels else ("no kernels to check", ALERT)


def _print_finding(
    page: Page, finding: Finding, place: str, quoted: Sequence[tuple[str, str]] = (), about: str = ""
) -> None:
    """Prints place, code and title of a finding, then the message, the `quoted` lines with their names, advice."""
    page.add((place, "bold"), "  ", (finding.code, ALERT), f" {_TITLES.get(finding.code, '')}")
    page.add(finding.message, indent=_INDENT, hang=0)
    shown = [(label, text) for label, text in quoted if text]
    width = max((len(label) for label, _ in shown), default=0)
    for label, text in shown:
        page.add((f"{label:>{width}} | ", "dim"), text, indent=_INDENT + 2, hang=min(width + 3, 12))
    if about:
        page.add((about, "dim"), indent=_INDENT)
    if finding.advice:
        page.add(("try: ", "bold"), finding.advice, indent=_INDENT, hang=5)


def _kernel_line(schedule: Schedule | None, finding: Finding) -> tuple[str, str]:
    """Returns the line of the kernel that a finding is about, and its name; an empty line if it is not known."""
    kernel = schedule and index_of(schedule).kernel(finding.number)
    number, lines = finding.source_line or 0, [] if kernel is None else kernel.source.split("\n")
    if kernel is None or not 0 < number <= len(lines):
        return "", ""
    return f"{kernel.target}:{number}", lines[number - 1].strip()


def _describe_place(schedule: Schedule | None, finding: Finding) -> str:
    parts: list[str] = []
    if finding.node is not None:
        node = schedule and index_of(schedule).node(finding.node)
        op = format_known(" {}", node and node.op)
        parts.append(f"node {format_known('{}/', finding.schedule)}{finding.node}{op}")
    if finding.schedule is not None:
        kernel = format_known("kernel #{} of ", finding.number)
        parts.append(f"{kernel}schedule {finding.schedule}")
    return ", ".join(parts)


def print_run(document: "RunDocument", console: Console) -> None:
    """Prints what `run --lint` found: each finding in two or three lines, then how much was checked."""
    page = Page(console)
    for finding in document.findings:
        _print_finding(page, finding, finding.line or "?")
    for reason, count in list(document.failed.items())[:_MOST_FAILURES]:
        sentence = f"{format_plural(count, 'schedule')} could not be checked: {reason.splitlines()[0][:200]}"
        page.add((sentence, "yellow"))
    counts = f" in {format_plural(document.schedules, 'schedule')}"
    if document.kernels:
        counts = f" in {format_plural(document.kernels, 'kernel')} of {format_plural(document.schedules, 'schedule')}"
    if document.ignored:
        counts += f", {document.ignored} ignored by comments"
    if document.undecided:
        counts += f" ({document.undecided:,} kernels have an address that is unknown)"
    account = document.account or Account()
    found = _count_findings(len(document.findings), document.kernels, account)
    page.add("vmapdbg lint: ", found, counts, (say_left(LINTED, account.left), "yellow"))
    page.print()


def dump_github(findings: Sequence[Finding], rules: Sequence[Rule]) -> str:
    """Returns one workflow command a finding: GitHub shows them at the line in a pull request."""
    known = {rule.code: rule for rule in rules}
    lines: list[str] = []
    for finding in findings:
        rule = known[finding.code]
        file, number = split_place(finding.line or "")
        where = "" if number is None else f"file={_property(file)},line={number},"
        title = _property(f"{finding.code} {rule.name}")
        text = finding.message + format_known(" - try: {}", finding.advice)
        lines.append(f"::{rule.severity} {where}title={title}::{_message(text)}\n")
    return "".join(lines)


def _message(text: str) -> str:
    return escape_unsafe(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def dump_sarif(findings: Sequence[Finding], rules: Sequence[Rule]) -> str:
    """Returns a SARIF 2.1.0 log with one run."""
    driver = {"name": "vmapdbg", "version": __version__, "rules": [_sarif_rule(rule) for rule in rules]}
    order = [rule.code for rule in rules]
    results = [_sarif_result(finding, rules[order.index(finding.code)], order) for finding in findings]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1, ensure_ascii=True) + "\n"


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    first_paragraph, _, _ = rule.explanation.partition("\n\n")
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split()),
        "shortDescription": {"text": rule.name},
        "fullDescription": {"text": " ".join(first_paragraph.split())},
        "help": {"text": rule.explanation.strip()},
        "defaultConfiguration": {"level": rule.severity},
    }


def _sarif_result(finding: Finding, rule: Rule, order: Sequence[str]) -> dict[str, Any]:
    text = finding.message + format_known(". Try: {}", finding.advice)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": order.index(finding.code),
        "level": rule.severity,
        "message": {"text": text},
        "properties": {"kernel": finding.kernel, "node": finding.node, "schedule": finding.schedule},
    }
    file, number = split_place(finding.line or "")
    if number is not None:
        uri = Path(file).as_uri() if Path(file).is_absolute() else Path(file).as_posix()
        location = {"artifactLocation": {"uri": uri}, "region": {"startLine": number}}
        result["locations"] = [{"physicalLocation": location}]
    return result
