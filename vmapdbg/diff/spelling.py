"""What the renderers of two releases spell in two ways, in one: numbers, and the integers that a kernel is given."""

from __future__ import annotations

import re
import struct

# a number of 32 bits; the digits behind those that it has may be any
_FLOAT = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?f\b")
_LARGEST = 3.4e38
_INTEGER = re.compile(r",\s*(?:const )?int (\w+)(?=\s*[,)])")
# a thread's number is copied to a variable of its own
_COPY = r"\n\s*int (\w+) = {};[^\n]*"


def settle_spelling(source: str, kernel: str) -> str:
    """Returns a source whose numbers are spelled in one way, and whose kernel has no integers but those that it uses,
    named in their order: which thread it is, and variables of the schedule."""
    start = source.find(f"{kernel}(")
    end = source.find(")", start)
    if start < 0 or end < 0:
        return settle_numbers(source)
    head, body = source[: end + 1], source[end + 1 :]
    number = 0
    for name in _INTEGER.findall(head):
        body, is_used = _settle_integer(body, name, f"integer{number}")
        number += is_used
    return settle_numbers(_INTEGER.sub("", head) + body)


def _settle_integer(body: str, name: str, settled: str) -> tuple[str, bool]:
    copied = re.search(_COPY.format(re.escape(name)), body)
    if copied is not None:
        body = re.sub(rf"\b{copied[1]}\b", name, body[: copied.start()] + body[copied.end() :])
    renamed, uses = re.subn(rf"\b{re.escape(name)}\b", settled, body)
    return renamed, uses > 0


def settle_numbers(text: str) -> str:
    """Returns a text whose 32 bit numbers have the digits that tell them apart, and no others."""
    return _FLOAT.sub(lambda match: settle_float(match[0]), text)


def settle_float(literal: str) -> str:
    """Returns a 32 bit number as its exact value: `0.025f` and `0.02500000037252903f` are one."""
    number = float(literal[:-1])
    if abs(number) > _LARGEST:
        return literal
    (value,) = struct.unpack("<f", struct.pack("<f", number))
    return f"{value!r}f"
