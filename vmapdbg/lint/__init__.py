"""Finds the faults of a capture without running anything: one rule a module, each with a stable code.

The rules decide from facts that the capture has (`Kernel.accesses`, `Bufferize.left_open`, the counts of work), so they
need no tinygrad and work on a saved capture. A rule says nothing where its facts are undecided.

    rule.py          what a rule is
    lost_steps.py    VD101        parallelism.py  VD103       outside.py      VD105     open_ranges.py  VD107
    local_memory.py  VD102        redundancy.py   VD104       unwritten.py    VD106     baseline.py     for 103 and 104
    ignores.py       `# vmapdbg: ignore[VD104]` on the user's line
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from vmapdbg.lint import local_memory, lost_steps, open_ranges, outside, parallelism, redundancy, unwritten
from vmapdbg.lint.rule import Rule
from vmapdbg.model import Capture, Finding

RULES: tuple[Rule, ...] = (
    lost_steps.RULE,
    local_memory.RULE,
    parallelism.RULE,
    redundancy.RULE,
    outside.RULE,
    unwritten.RULE,
    open_ranges.RULE,
)
CODES = tuple(rule.code for rule in RULES)


def find_rule(code: str) -> Rule:
    """Returns the rule of a code. Raises KeyError."""
    return next(rule for rule in RULES if rule.code == code) if code in CODES else _unknown(code)


def _unknown(code: str) -> Rule:
    raise KeyError(code)


def lint_capture(
    capture: Capture, baseline: Capture | None = None, codes: Collection[str] = CODES
) -> tuple[Finding, ...]:
    """Returns the findings of the rules in `codes`, faults before what is slow, then in the order of the schedules.

    `baseline` is a capture of the same snippet with other patches: without one VD103 finds nothing. What is the same in
    a later schedule (a kernel that runs again) is reported once.
    """
    found: dict[tuple[object, ...], Finding] = {}
    for rule in sorted(RULES, key=lambda rule: rule.severity):
        if rule.code in codes:
            for finding in rule.find(capture, baseline):
                found.setdefault((finding.code, finding.message, finding.line), finding)
    severity = {rule.code: rule.severity for rule in RULES}
    return tuple(
        sorted(
            found.values(),
            key=lambda f: (severity[f.code], -1 if f.schedule is None else f.schedule, f.number or 0, f.code),
        )
    )


def with_findings(capture: Capture, baseline: Capture | None = None, codes: Collection[str] = CODES) -> Capture:
    """Returns the capture with its findings."""
    return replace(capture, findings=lint_capture(capture, baseline, codes))
