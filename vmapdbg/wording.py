"""Words that every sentence of the tool needs."""

from __future__ import annotations


def format_plural(count: int, noun: str, plural: str | None = None) -> str:
    """Returns `1 kernel`, `2 kernels`, `2,048 threads`; `plural` where it is not the noun with an `s`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or noun + 's'}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, which may be empty."""
    return next(iter(str(error).splitlines()), "")
