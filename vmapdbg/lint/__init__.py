"""Finds the faults of a capture without running anything. Each rule has a stable code.

The rules decide from facts of the capture, which may be a saved one, without tinygrad. A rule reports nothing if its
facts are undecided. To add a rule, decorate a function with `rule` (`rule.py`) in one of the modules below."""

from collections.abc import Collection, Iterable

from vmapdbg.lint import cost, memory
from vmapdbg.lint.rule import Rule
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.schedule_index import group_equal

_VALUES = [*vars(cost).values(), *vars(memory).values()]
RULES: tuple[Rule, ...] = tuple(sorted((v for v in _VALUES if isinstance(v, Rule)), key=lambda rule: rule.code))
CODES = tuple(rule.code for rule in RULES)
NEED_BASELINE = frozenset(rule.code for rule in RULES if rule.compares)
"""The codes of the rules that compare with a baseline, if there is one."""


def lint_capture(
    capture: Capture, baseline: Capture | None = None, codes: Collection[str] = CODES
) -> tuple[Finding, ...]:
    """Returns the findings of the rules in `codes`: errors first, repeated kernels once. VD103 needs the `baseline`."""
    asked = [rule for rule in RULES if rule.code in codes]
    found = drop_repeated(finding for rule in asked for finding in rule.find(capture, baseline))
    severity = {rule.code: rule.severity for rule in RULES}

    def sort_key(finding: Finding) -> tuple[str, int, int, str]:
        schedule = -1 if finding.schedule is None else finding.schedule
        return severity[finding.code], schedule, finding.number or 0, finding.code

    return tuple(sorted(found, key=sort_key))


def drop_repeated(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings, of equal ones the first."""
    return [same[0] for same in group_equal(findings, lambda finding: (finding.code, finding.message, finding.line))]
