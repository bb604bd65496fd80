"""All ops of the table."""

from __future__ import annotations

from . import elementwise, indexing, movement, networks, patterns, reductions
from .data import Op

ALL: list[Op] = [
    found for family in (elementwise, reductions, movement, indexing, networks, patterns) for found in family.OPS
]
OPS: dict[str, Op] = {found.name: found for found in ALL}
assert len(OPS) == len(ALL), "two ops of one name"

# what does not work, and why: (part of the case's name, reason)
KNOWN: tuple[tuple[str, str], ...] = ()


def why_not(case: object) -> str | None:
    """The reason why a case does not work; None if it works."""
    return next((reason for part, reason in KNOWN if part in str(case)), None)
