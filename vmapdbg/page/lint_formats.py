"""Findings in formats of other programs: GitHub's workflow commands, SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmapdbg import __version__
from vmapdbg.lint.rule import Rule
from vmapdbg.model.capture import Finding
from vmapdbg.model.wording import format_known, split_place


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
