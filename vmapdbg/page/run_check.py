"""The sentences about what `vmapdbg run --check` found."""

from __future__ import annotations

from dataclasses import replace

from vmapdbg.check.suite import EndlessCall, ProgramCheck, WrongValue
from vmapdbg.model.wording import format_known
from vmapdbg.page.check_sentences import describe_wrong, explain_value, name_output
from vmapdbg.page.crash_sentences import describe_crash, describe_expected


def add_messages(found: ProgramCheck) -> ProgramCheck:
    """Returns the results with a sentence for each wrong value and each rewrite that was stopped."""
    findings = tuple(replace(wrong, message=describe_value(wrong)) for wrong in found.findings)
    endless = tuple(replace(call, message="; ".join(describe_endless(call))) for call in found.endless)
    return replace(found, findings=findings, endless=endless)


def describe_endless(call: EndlessCall) -> list[str]:
    """Returns what was rewritten without end, by which rules, and what should have been computed; a sentence each."""
    return [*describe_crash(call.crash), *map(describe_expected, call.expected[:1])]


def describe_value(wrong: WrongValue) -> str:
    """Returns `output 0 (2, 3) float: 4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`."""
    replay = format_known("replay {} by TinyJit: ", wrong.replay)
    output = wrong.output
    found = f"{replay}{name_output(output)} {output.shape} {output.dtype}: {describe_wrong(output.comparison)}"
    return "; ".join([found, *explain_value(output)])
