"""Findings for programs: JSON, GitHub's workflow commands, SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vmapdbg import __version__
from vmapdbg.lint.rule import Rule
from vmapdbg.model.capture import SCHEMA, Capture, Finding, SnippetError, Versions
from vmapdbg.model.data import dump_document
from vmapdbg.model.wording import format_known, split_place


@dataclass(frozen=True)
class LintDocument:
    """What `vmapdbg lint --format json` prints: the head of the capture and the findings. `ignored` counts those that a
    comment on the user's line took out."""

    schema: Literal[1]
    kind: Literal["lint"]
    versions: Versions
    snippet: str
    target: str
    patches: dict[str, bool]
    error: SnippetError | None
    findings: tuple[Finding, ...]
    ignored: int


@dataclass(frozen=True)
class LintFilesDocument:
    """What `vmapdbg lint --format json` prints about several files: what it prints about each."""

    schema: Literal[1]
    kind: Literal["lint-files"]
    files: tuple[LintDocument, ...]


@dataclass(frozen=True)
class RunDocument:
    """What `vmapdbg run --lint-output` writes: the findings of a whole program, its processes together.

    `status` is the exit code of the program (128 + the signal that killed it). `kernels` counts the different ones of
    each process, `undecided` those of them with an address that could not be told, `ignored` the findings that comments
    took out, `failed` the schedules that could not be looked at, by reason.
    """

    schema: Literal[1]
    kind: Literal["run"]
    target: str
    status: int
    schedules: int
    kernels: int
    undecided: int
    ignored: int
    failed: dict[str, int]
    findings: tuple[Finding, ...]


def make_lint_document(capture: Capture, findings: Sequence[Finding], ignored: int) -> LintDocument:
    """Returns the document of some findings of a capture."""
    return LintDocument(
        schema=SCHEMA,
        kind="lint",
        versions=capture.versions,
        snippet=capture.snippet,
        target=capture.target,
        patches=capture.patches,
        error=capture.error,
        findings=tuple(findings),
        ignored=ignored,
    )


def dump_json(capture: Capture, findings: Sequence[Finding], ignored: int) -> str:
    return dump_document(make_lint_document(capture, findings, ignored))


def dump_json_of_files(documents: Sequence[LintDocument]) -> str:
    return dump_document(LintFilesDocument(schema=SCHEMA, kind="lint-files", files=tuple(documents)))


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
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


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
