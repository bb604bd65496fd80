"""Names the rule that kept or removed each buffer, with its operands.

The tests of the cost function are known by what they are about; an answer that none of them explains is `decided-at`.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.child.listen.records import BufferRecord, Condition, Decision, PassRecord, UOp, Verdict

NEVER_REMOVED, NOT_REMOVABLE = "never-removed", "not-removable"
MANY_BUFFERS, REDUCE_READS, CHEAP = "reads-many-buffers", "reduce-reads-buffer", "cheap"
SAME_INDEX, CONSTANT, THREEFRY = "same-index", "constant", "threefry"
OUTPUT, NO_RULE, FOLDED, TOO_MANY, UNKNOWN = "output", "no-rule", "folded", "buffer-limit", "decided-at"
_READ = frozenset({"BUFFER", "PARAM", "BUFFERIZE", "STAGE", "AFTER"})


@dataclass(frozen=True)
class BufferReason:
    """Why a buffer was kept or removed.

    `decision` is None where no rule answered: an output that nobody reads (`output`), a buffer that no rule looked at
    (`no-rule`), one that went away with its reader or its value (`folded`). `accessed` are the buffers that its value
    reads, `reduces` the reduces in its value that read a buffer.
    """

    rule: str
    kept: bool
    decision: Decision | None = None
    accessed: tuple[UOp, ...] = ()
    reduces: tuple[UOp, ...] = ()
    # those of a rule of the overlay's own; None for any other rule
    numbers: dict[str, int | float | str] | None = None


def explain_buffer(passed: PassRecord, buffer: BufferRecord) -> BufferReason:
    """Returns the rule that decided about a buffer, and its answer."""
    verdict = find_verdict(buffer)
    if verdict is not None:
        return _name_verdict(verdict, buffer.stored)
    if not buffer.stored:
        return BufferReason(FOLDED, False)
    if buffer.made_by is not None:
        return BufferReason(TOO_MANY, True, buffer.made_by)
    if any(source.base is buffer.node for source in passed.tsink.src):
        return BufferReason(OUTPUT, True)
    return BufferReason(NO_RULE, True)


def find_verdict(buffer: BufferRecord) -> Verdict | None:
    """Returns the last answer that agrees with what became of a buffer. Only a rule that looks at a reader refuses to
    remove one: the others do not apply."""
    wanted = "kept" if buffer.stored else "removed"
    verdicts = reversed(list(buffer.verdicts.values()))
    return next((v for v in verdicts if v.outcome == wanted and (v.reader is not None or not buffer.stored)), None)


def _name_verdict(verdict: Verdict, kept: bool) -> BufferReason:
    decision, value = verdict.decision, verdict.stage.src[0]
    if decision is None:
        return BufferReason(verdict.rule, kept, numbers=verdict.numbers)
    accessed = tuple(_find_part(decision, "accessed_buffers") or ())
    reduces: list[UOp] = []
    if _find_holding(decision, "buffer_in_reduce"):
        reduces = find_reading_reduces(value)
    return BufferReason(_find_rule(verdict, decision, kept), kept, decision, accessed, tuple(reduces))


def _find_rule(verdict: Verdict, decision: Decision, kept: bool) -> str:
    value = verdict.stage.src[0]
    if verdict.reader is None:
        if value.op.name == "CONST":
            return CONSTANT
        if value.op.name == "INDEX" and value.src[1:] == verdict.stage.src[1:]:
            return SAME_INDEX
        return UNKNOWN
    if (test := _find_holding(decision, "removable")) is not None:
        if any(text.endswith("removable") and v is False for text, v in test.values.items()):
            return NOT_REMOVABLE
        return NEVER_REMOVED
    if _find_holding(decision, "out_in_ratio") or _find_holding(decision, "is_subs"):
        return UNKNOWN
    if _find_holding(decision, "buffer_in_reduce"):
        return REDUCE_READS
    if _find_holding(decision, "accessed_buffers"):
        return MANY_BUFFERS
    if kept:
        return UNKNOWN
    if value.op.name == "THREEFRY":
        return THREEFRY
    return CHEAP


def _find_holding(decision: Decision, about: str) -> Condition | None:
    return next((c for c in decision.conditions if c.holds and about in c.text), None)


def _find_part(decision: Decision, name: str) -> list[UOp] | None:
    return next((v for c in decision.conditions for text, v in c.values.items() if text == name), None)


def find_reading_reduces(value: UOp) -> list[UOp]:
    """Returns the reduces in a value that read a buffer, down to the buffers that the value itself reads."""
    inside = value.toposort(gate=lambda u: u.op.name not in _READ)
    return [u for u in inside if u.op.name == "REDUCE" and _reads(u.src[0])]


def _reads(value: UOp) -> bool:
    if value.op.name in _READ:
        return True
    inside = value.toposort(gate=lambda u: u.op.name not in _READ)
    return any(s.op.name in _READ for u in inside for s in u.src)
