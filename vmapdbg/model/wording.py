"""Words that every sentence of the tool needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_plural(count: int, noun: str, plural: str | None = None) -> str:
    """Returns `1 kernel`, `2 kernels`, `2,048 threads`; `plural` where it is not the noun with an `s`."""
    return f"{count:,} {inflect(count, noun, plural)}"


def inflect(count: int, noun: str, plural: str | None = None) -> str:
    """Returns the form of a noun for a number: `kernel` for 1, else `kernels`, or `plural`."""
    if count == 1:
        return noun
    return plural or noun + "s"


def count_shown(shown: int, known: int, noun: str) -> str:
    """Returns `3 kernels`, and `2 of 3 kernels` where not all that are known are shown."""
    every = format_plural(known, noun)
    return every if shown == known else f"{shown} of {every}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, which may be empty."""
    return next(iter(str(error).splitlines()), "")


def format_known(form: str, value: object) -> str:
    """Returns `value` in `form`, as `  {}` or ` at {}`; nothing where it is None or empty."""
    if value is None or value == "":
        return ""
    return form.format(value)


def cut_end(text: str, most: int) -> str:
    """Returns at most so many characters of a text, its end replaced by `...` where it is longer."""
    if len(text) <= most:
        return text
    return text[: most - 3] + "..."


def join_counted(counts: Iterable[tuple[str, int]]) -> str:
    """Returns `2 MUL, ADD`: each name with its number where that is not 1."""
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts)


def join_first(words: Sequence[str], most: int) -> str:
    """Returns `a, b`, and `a, b and 4 more` where there are more than `most`."""
    first = ", ".join(words[:most])
    if len(words) <= most:
        return first
    return f"{first} and {len(words) - most} more"


def shorten_commit(commit: str) -> str:
    """Returns a commit as git describes it with 12 digits: `3f2a91c7d0be`, `3f2a91c7d0be-dirty`."""
    digits, dash, dirty = commit.partition("-")
    return f"{digits[:12]}{dash}{dirty}"


def format_seconds(seconds: float) -> str:
    """Returns `8 s`, `3 min`, `2 h`, of at least a second."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
