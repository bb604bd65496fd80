"""What the tool claims of a whole run: only this module says that all is right, and only if the account is balanced."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from vmapdbg.model.account import Account, Counted, Left
from vmapdbg.model.capture import Capture
from vmapdbg.model.wording import format_known, format_plural

_NOUNS: dict[Counted, tuple[str, str | None]] = {
    "buffers": ("assigned buffer", None),
    "other schedules": ("schedule", None),
    "launches": ("launch", "launches"),
    "other launches": ("launch", "launches"),
    "passes": ("pass", "passes"),
    "processes": ("process", "processes"),
}
"""The noun of what is counted, and its plural. Others are called as they are, without the `s` for one."""
_MOST_REASONS = 3
GOOD, OPEN = "bold green", "bold yellow"
"""The styles of a claim, and of a claim that cannot be made."""


class Words(NamedTuple):
    """What a command says: what it did; if all is right; if what it looked at is; if there was nothing to look at."""

    done: str
    good: str
    partly: str
    nothing: str


CHECKED = Words("compared", "all right", "none wrong", "nothing was compared")
SHOWN = Words("shown", "all shown", "as far as they were seen", "nothing is shown")
LINTED = Words("looked at", "no finding", "0 findings", "nothing was looked at")
FOLLOWED = Words("followed", "right after every pass", "none found wrong", "no output was followed")


def claim(words: Words, account: Account, ended: str = "") -> tuple[str, str]:
    """Returns the claim about a run without findings, and its style. `ended` says how the run failed, or nothing."""
    names = [what for what, count in account.seen.items() if count and not what.startswith("other")]
    if not any(account.compared.get(what, 0) for what in names):
        return words.nothing, OPEN
    if account.is_balanced and not ended:
        return f"{', '.join(count_things(what, account.seen[what]) for what in names)}, {words.good}", GOOD
    parts: list[str] = []
    for what in names:
        compared = account.compared.get(what, 0)
        of = "" if compared == account.seen[what] else f"{compared:,} of "
        parts.append(of + count_things(what, account.seen[what]))
    return f"{', '.join(parts)} {words.done}, {words.partly}{format_known(', {}', ended or None)}", OPEN


def say_ended(capture: Capture) -> str:
    """Returns how a snippet failed, "" if it did not."""
    return "until the snippet failed" if capture.error is not None else ""


def account_of_shown(capture: Capture) -> Account:
    """Returns the account of what a capture shows: the launches of the run."""
    return (capture.account or Account()).of_launches


def account_of_linted(capture: Capture) -> Account:
    """Returns the account of what lint looks at: the launches that a capture shows, and its kernels."""
    shown, kernels = account_of_shown(capture), capture.kernels
    failed, undecided = sum(k.failed is not None for k in kernels), sum(k.is_undecided for k in kernels)
    reasons = {"it has no program": failed, "an address is unknown": undecided}
    left = tuple(Left("kernels", count, reason) for reason, count in reasons.items() if count)
    return replace(shown, left=(*shown.left, *left))


def say_shown(capture: Capture) -> str:
    """Returns `5 launches, 0 shown; ` if a run launched more than its capture has, "" otherwise."""
    account = account_of_shown(capture)
    if not account.left:
        return ""
    counts = count_things("launches", sum(account.seen.values()))
    return f"{counts}, {sum(account.compared.values()):,} {SHOWN.done}; "


def say_idle(capture: Capture) -> str:
    """Returns what to say of a schedule that is shown without kernels."""
    return "nothing to run" if account_of_shown(capture).is_balanced else "no kernel is shown"


def claim_clean(account: Account, ended: str = "") -> tuple[str, str]:
    """Returns what to say if lint finds nothing. `ended` is as for `claim`."""
    return (LINTED.good, GOOD) if account.is_balanced and not ended else (LINTED.partly, OPEN)


def claim_same(account: Account | None) -> tuple[str, str]:
    """Returns what to say of two runs without a difference."""
    return ("no change", GOOD) if account is not None and account.is_balanced else ("no difference found", OPEN)


def claim_values(status: str, account: Account | None) -> str:
    """Returns how the values of two runs compare: `values equal` only if all of them were compared."""
    part = (account or Account()).part("outputs", "replays")
    if status != "equal" or part.is_balanced:
        return f"values {status}"
    return f"{part.compared.get('outputs', 0)} of {count_things('outputs', part.seen.get('outputs', 0))} equal"


def count_things(what: Counted, count: int) -> str:
    """Returns `3 outputs`."""
    return format_plural(count, *_NOUNS.get(what, (what.removesuffix("s"), None)))


def say_left(words: Words, left: Iterable[Left]) -> str:
    """Returns `; 7 not compared: 4 outputs (REASON), 3 replays (REASON)`, nothing if nothing is left over."""
    found = sorted(left, key=lambda one: -one.count)
    if not found:
        return ""
    reasons = [f"{count_things(one.what, one.count)} ({one.reason})" for one in found[:_MOST_REASONS]]
    if more := len(found) - len(reasons):
        reasons.append(f"and for {format_plural(more, 'other reason')}")
    return f"; {sum(one.count for one in found):,} not {words.done}: {', '.join(reasons)}"
