"""Small functions on text that every part of the tool needs."""

import re
from collections.abc import Iterable, Sequence

# Control and bidirectional characters and lone surrogates: they would move the cursor, colour a pipe, or fail
# to encode.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def format_plural(count: int, noun: str, plural: str | None = None) -> str:
    """Returns `1 kernel`, `2 kernels`, `2,048 threads`; pass `plural` if it is not the noun with an `s`."""
    return f"{count:,} {inflect(count, noun, plural)}"


def inflect(count: int, noun: str, plural: str | None = None) -> str:
    """Returns the noun for a count: `kernel` for 1, else `kernels` or `plural`."""
    return noun if count == 1 else plural or noun + "s"


def count_shown(shown: int, known: int, noun: str) -> str:
    """Returns `3 kernels`, or `2 of 3 kernels` if not all are shown."""
    every = format_plural(known, noun)
    return every if shown == known else f"{shown} of {every}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, "" if it has none; Python's words if it cannot be printed."""
    try:
        return next(iter(str(error).splitlines()), "")
    except Exception:
        return "<exception str() failed>"


def format_known(form: str, value: object) -> str:
    """Returns `value` in a form such as ` at {}`; "" if the value is None or empty."""
    return "" if value is None or value == "" else form.format(value)


def cut_end(text: str, most: int) -> str:
    """Returns at most `most` characters of a text; the end of a longer text becomes `...`."""
    return text if len(text) <= most else text[: most - 3] + "..."


def join_counted(counts: Iterable[tuple[str, int]]) -> str:
    """Returns `2 MUL, ADD`: each name, with its count if that is not 1."""
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts)


def join_first(words: Sequence[str], most: int) -> str:
    """Returns `a, b`, or `a, b and 4 more` if there are more than `most` words."""
    first = ", ".join(words[:most])
    return first if len(words) <= most else f"{first} and {len(words) - most} more"


def shorten_commit(commit: str) -> str:
    """Returns a commit with 12 digits: `3f2a91c7d0be`, `3f2a91c7d0be-dirty`."""
    digits, dash, dirty = commit.partition("-")
    return f"{digits[:12]}{dash}{dirty}"


def split_place(place: str) -> tuple[str, int | None]:
    """Returns file and line of `file:12`, a place in the user's code; the text and None if it has no line."""
    # from the right: a path may contain a colon
    file, _, number = place.rpartition(":")
    if not file or not number.isdecimal():
        return place, None
    return file, int(number)


def escape_unsafe(value: str, encoding: str = "utf-8") -> str:
    """Returns `value` with escapes such as `\\x1b` for characters unsafe in a terminal or missing in `encoding`."""
    if value.isascii() and value.isprintable():
        return value
    value = _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), value.expandtabs(4))
    return value if encoding.startswith("utf") else value.encode(encoding, "backslashreplace").decode(encoding)
