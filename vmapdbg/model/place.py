"""A place in the user's code, as a Capture names it: `file:12`."""

from __future__ import annotations


def split_place(place: str) -> tuple[str, int | None]:
    """Returns file and line of `file:12`; the text as it is and None where it has no line."""
    # from the right: a path may have a colon, too
    file, _, number = place.rpartition(":")
    if not file or not number.isdecimal():
        return place, None
    return file, int(number)
