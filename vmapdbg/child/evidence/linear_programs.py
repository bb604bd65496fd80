"""Keeps the linear programs of launches: each is packed once, however often it is launched. Runs in the child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from vmapdbg.child.evidence.folder import BlobsFull, EvidenceFolder
from vmapdbg.child.program.emulator import keep_program

UOp = Any

MOST_OPS = 50_000
"""A longer program is not kept."""

# last UOp of a program -> values of its variables -> the packed program, or why there is none
_packed: WeakKeyDictionary[UOp, dict[tuple[tuple[str, int], ...], bytes | str]] = WeakKeyDictionary()


def keep_linear(
    folder: EvidenceFolder, uops: Sequence[UOp], variables: Mapping[str, int]
) -> tuple[str | None, str | None]:
    """Returns the name of a linear program in the folder; or None, and why it is not there."""
    if not uops:
        return None, "its linear program was not kept"
    known = _packed.setdefault(uops[-1], {})
    key = tuple(sorted(variables.items()))
    if key not in known:
        known[key] = _pack(uops, variables)
    data = known[key]
    if isinstance(data, str):
        return None, data
    try:
        return folder.keep_data(data), None
    except BlobsFull:
        return None, "there was no room for its linear program"


def _pack(uops: Sequence[UOp], variables: Mapping[str, int]) -> bytes | str:
    if len(uops) > MOST_OPS:
        return f"its linear program is too long to be kept: {len(uops):,} ops"
    try:
        return keep_program(uops, variables)
    except Exception as error:  # an op of the snippet's own, which no other process knows
        return f"its linear program cannot be kept: {type(error).__name__}: {error}"
