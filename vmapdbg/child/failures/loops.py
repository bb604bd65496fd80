"""Which rewrite of code generation left a program that cannot be put in order: one loop with several ends.

The kernel is lowered once more, up to where that failed, and looked at after each rewrite."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from vmapdbg.child.failures.rewrites import shorten_place
from vmapdbg.model.crash import SharedLoop

UOp = Any


class _Stop(Exception):
    """The rewrite that failed comes next."""


def find_shared_loop(ast: UOp, renderer: Any, last: str | None) -> SharedLoop | None:
    """Returns the loop of a kernel that has several ends, None where each has one. `last` is the name of the rewrite
    that failed: it is not tried again."""
    import tinygrad.codegen

    from vmapdbg.child.live import process_kept

    codegen: Any = tinygrad.codegen
    lower = getattr(codegen, "full_rewrite_to_sink", None)
    if lower is None:
        return None
    seen: list[tuple[str, str, UOp]] = []

    def watched(rewrite: Callable[..., UOp]) -> Callable[..., UOp]:
        def listen(sink: UOp, *args: Any, **options: Any) -> UOp:
            name = options.get("name")
            if name is not None and name == last:
                raise _Stop
            result = rewrite(sink, *args, **options)
            caller = sys._getframe(1)
            seen.append((str(name), shorten_place(caller.f_code.co_filename, caller.f_lineno), result))
            return result

        return listen

    before = codegen.graph_rewrite
    codegen.graph_rewrite = watched(before)
    try:
        # it fails as it did, or stops
        with contextlib.suppress(Exception), process_kept():
            lower(ast, renderer, optimize=ast.tag is None)
    finally:
        codegen.graph_rewrite = before
    return _read_loops(ast, seen)


def _read_loops(ast: UOp, seen: list[tuple[str, str, UOp]]) -> SharedLoop | None:
    for name, place, sink in seen:
        ends = _count_ranges(sink, "END")
        shared = next((r for r, count in ends.items() if count > 1), None)
        if shared is None:
            continue
        in_ast = most = _count_ranges(ast, "REDUCE")[shared]
        grown: tuple[str | None, str | None] = (None, None)
        for other, where, graph in seen:
            now = _count_ranges(graph, "REDUCE")[shared]
            if now > most:
                grown, most = (other, where), now
        return SharedLoop(f"r{shared}", ends[shared], name, place, in_ast, most, *grown)
    return None


def _count_ranges(sink: UOp, op: str) -> Counter[int]:
    """Returns for the number of each loop how many ENDs, or REDUCEs, there are of it."""
    users = [u for u in sink.toposort() if u.op.name == op]
    return Counter(r.arg[0] for u in users for r in u.src[1:] if r.op.name == "RANGE" and r.arg[-1].name == "REDUCE")
