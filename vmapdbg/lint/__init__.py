"""Finds the faults of a capture without running anything: one rule a module, each with a stable code.

The rules decide from facts that the capture has (`Kernel.accesses`, `Bufferize.left_open`, the counts of work), so they
need no tinygrad and work on a saved capture. A rule says nothing where its facts are undecided.

    rule.py       what a rule is            baseline.py   which kernels VD103 and VD104 compare with
    ignores.py    `# vmapdbg: ignore[VD104]` on the user's line

To add a code, write its module with a RULE and list it in RULES.
"""

from __future__ import annotations

from collections.abc import Collection

from vmapdbg.lint import (
    accumulators,
    local_memory,
    open_ranges,
    outside,
    overlapping_stores,
    overwritten_input,
    parallelism,
    redundancy,
    unwritten,
    wrong_order,
)
from vmapdbg.lint.rule import Rule
from vmapdbg.model.capture import Capture, Finding

RULES: tuple[Rule, ...] = (
    overlapping_stores.RULE,
    local_memory.RULE,
    parallelism.RULE,
    redundancy.RULE,
    outside.RULE,
    unwritten.RULE,
    open_ranges.RULE,
    accumulators.RULE,
    wrong_order.RULE,
    overwritten_input.RULE,
)
CODES = tuple(rule.code for rule in RULES)


NEED_BASELINE = frozenset(rule.code for rule in RULES if rule.compares)
"""The codes that compare with a baseline where there is one."""


def lint_capture(
    capture: Capture, baseline: Capture | None = None, codes: Collection[str] = CODES
) -> tuple[Finding, ...]:
    """Returns the findings of the rules in `codes`, faults before what is slow, then in the order of the schedules.

    `baseline` is a capture of the same snippet with other patches: without one VD103 finds nothing. What is the same in
    a later schedule (a kernel that runs again) is reported once.
    """
    found: dict[tuple[object, ...], Finding] = {}
    for rule in RULES:
        if rule.code in codes:
            for finding in rule.find(capture, baseline):
                found.setdefault((finding.code, finding.message, finding.line), finding)
    severity = {rule.code: rule.severity for rule in RULES}

    def order(finding: Finding) -> tuple[str, int, int, str]:
        schedule = -1 if finding.schedule is None else finding.schedule
        return severity[finding.code], schedule, finding.number or 0, finding.code

    return tuple(sorted(found.values(), key=order))
