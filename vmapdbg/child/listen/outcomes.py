"""What the answer of a rule means for the buffer it was asked about."""

from __future__ import annotations

from collections.abc import Container, Sequence

from vmapdbg.child.listen.records import UOp

# a rule's answer may wrap what it stands for in these
_WRAPS = frozenset({"RESHAPE", "PERMUTE", "EXPAND", "SHRINK", "PAD", "FLIP", "INDEX", "CAST", "AFTER"})
_MEMORY = frozenset({"BUFFER", "PARAM", "DEFINE_GLOBAL", "BUFFER_VIEW"})


def find_outcome(stage: UOp, answer: UOp | None, known: Container[UOp]) -> tuple[str, UOp | None]:
    """Returns what a rule's answer makes of a buffer, and the buffer that takes its place, if any.

    A buffer that is not among those `known` was made by this rule. The outcome is "same" where nothing changed.
    """
    if answer is None:
        return "kept", None
    inside = answer
    while inside.op.name in _WRAPS and inside.src:
        inside = inside.src[0]
    if inside.op is not stage.op:
        return "removed", None
    if inside.arg is not stage.arg and inside in known:
        return "removed", None
    if inside.src == stage.src and inside.arg == stage.arg:
        return "same", inside
    return "narrowed", inside


def find_memory(pointer: UOp) -> UOp:
    """Returns the BUFFER or PARAM that a pointer, a view or a kernel's argument stands for."""
    while pointer.op.name not in _MEMORY and pointer.src:
        pointer = pointer.src[0]
    return pointer


def find_written(arguments: Sequence[UOp]) -> UOp | None:
    """Returns the memory that a kernel writes, by what it is called with: that of its first argument."""
    if not arguments:
        return None
    return find_memory(arguments[0])


def find_stores(stored: UOp) -> list[UOp]:
    """Returns the STOREs, and the ENDs around them, of what a rule made of a buffer."""
    while stored.op.name in _WRAPS and stored.op.name != "AFTER" and stored.src:
        stored = stored.src[0]
    if stored.op.name != "AFTER":
        return []
    found = []
    for store in stored.src[1:]:
        while store.op.name in {"END", "BARRIER"}:
            found.append(store)
            store = store.src[0]
        if store.op.name == "STORE":
            found.append(store)
    return found
