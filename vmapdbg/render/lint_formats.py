"""Findings for programs: JSON, GitHub's workflow commands, SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmapdbg import __version__
from vmapdbg.data import to_data
from vmapdbg.model import Capture, Finding


@dataclass(frozen=True)
class RuleText:
    """What the formats say of a rule."""

    code: str
    title: str
    severity: str
    explanation: str


def dump_json(capture: Capture, findings: Sequence[Finding], ignored: int) -> str:
    """Returns one JSON document: the capture's heading fields, without its schedules, and the findings."""
    heading = {name: to_data(getattr(capture, name)) for name in ("schema", "versions", "snippet", "target", "patches")}
    document = {**heading, "error": to_data(capture.error), "findings": to_data(tuple(findings)), "ignored": ignored}
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def dump_github(findings: Sequence[Finding], rules: Sequence[RuleText]) -> str:
    """Returns one workflow command a finding: GitHub shows them at the line in a pull request."""
    known = {rule.code: rule for rule in rules}
    lines = []
    for finding in findings:
        rule = known[finding.code]
        file, number = split_place(finding.line)
        where = f"file={_property(file)},line={number}," if file is not None else ""
        title = _property(f"{finding.code} {rule.title}")
        text = _message(finding.message + (f" - try: {finding.advice}" if finding.advice else ""))
        lines.append(f"::{rule.severity} {where}title={title}::{text}\n")
    return "".join(lines)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def split_place(place: str | None) -> tuple[str | None, int]:
    """Returns (file, line), (None, 1) where there is none."""
    file, _, number = (place or "").rpartition(":")
    return (file, int(number)) if file and number.isdigit() else (None, 1)


def dump_sarif(findings: Sequence[Finding], rules: Sequence[RuleText]) -> str:
    """Returns a SARIF 2.1.0 log with one run."""
    driver = {
        "name": "vmapdbg",
        "version": __version__,
        "rules": [
            {
                "id": rule.code,
                "name": "".join(word.capitalize() for word in rule.title.split()),
                "shortDescription": {"text": rule.title},
                "fullDescription": {"text": " ".join(rule.explanation.split("\n\n")[0].split())},
                "help": {"text": rule.explanation.strip()},
                "defaultConfiguration": {"level": rule.severity},
            }
            for rule in rules
        ],
    }
    order = [rule.code for rule in rules]
    results = [_sarif_result(finding, rules[order.index(finding.code)], order) for finding in findings]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1, ensure_ascii=True) + "\n"


def _sarif_result(finding: Finding, rule: RuleText, order: Sequence[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": order.index(finding.code),
        "level": rule.severity,
        "message": {"text": finding.message + (f". Try: {finding.advice}" if finding.advice else "")},
        "properties": {"kernel": finding.kernel, "node": finding.node, "schedule": finding.schedule},
    }
    file, number = split_place(finding.line)
    if file is not None:
        uri = Path(file).as_uri() if Path(file).is_absolute() else Path(file).as_posix()
        location = {"artifactLocation": {"uri": uri}, "region": {"startLine": number}}
        result["locations"] = [{"physicalLocation": location}]
    return result
