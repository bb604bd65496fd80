"""What the arguments of nodes say: a Capture has them as text."""

from __future__ import annotations

import re


def read_number(arg: str) -> str:
    """Returns a constant without its dtype: `1`, `1.0` and `True` are one number."""
    if arg in ("True", "False"):
        return str(int(arg == "True"))
    try:
        return repr(float(arg)).removesuffix(".0")
    except ValueError:
        return arg


def read_words(arg: str) -> list[str]:
    """Returns the names and numbers of an argument: `ADD (1,)` is `ADD`, `1`."""
    return re.findall(r"\w+", arg)


def read_numbers(arg: str) -> list[int]:
    """Returns the numbers of an argument, such as the axes of a PERMUTE."""
    return [int(number) for number in re.findall(r"-?\d+", arg)]


def read_begins(arg: str, rank: int) -> list[str]:
    """Returns where each axis of a PAD or SHRINK begins: `((1, 3), (0, 2))` are pairs of a begin, and an end or a size,
    which the shape has as well."""
    pairs = re.findall(r"\(\s*([^(),]+),[^()]*\)", arg)
    return pairs if len(pairs) == rank else [arg] * rank
