"""Finds the rewrite of code generation that gives one loop several ENDs, so that the program cannot be ordered.

The kernel is lowered once more, up to the rewrite that failed, and checked after each rewrite."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import Any

from vmapdbg.child.failures.rewrites import shorten_place
from vmapdbg.model.crash import SharedLoop

UOp = Any


class _Stop(Exception):
    """The rewrite that failed comes next."""


def find_shared_loop(ast: UOp, renderer: Any, last: str | None) -> SharedLoop | None:
    """Returns the loop of a kernel that has several ENDs, None if each has one. `last` is the name of the rewrite that
    failed: it is not tried again."""
    import tinygrad.codegen

    from vmapdbg.child.live import process_kept

    codegen: Any = tinygrad.codegen
    lower = getattr(codegen, "full_rewrite_to_sink", None)
    if lower is None:
        return None
    seen: list[tuple[str, str, UOp]] = []
    rewrite = codegen.graph_rewrite

    def listen(sink: UOp, *args: Any, **options: Any) -> UOp:
        name = options.get("name")
        if name is not None and name == last:
            raise _Stop
        result = rewrite(sink, *args, **options)
        caller = sys._getframe(1)
        seen.append((str(name), shorten_place(caller.f_code.co_filename, caller.f_lineno), result))
        return result

    codegen.graph_rewrite = listen
    try:
        # it fails again, or stops
        with contextlib.suppress(Exception), process_kept():
            lower(ast, renderer, optimize=ast.tag is None)
    finally:
        codegen.graph_rewrite = rewrite
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
    """Counts the ENDs, or the REDUCEs, of each loop by its number."""
    users = [u for u in sink.toposort() if u.op.name == op]
    return Counter(r.arg[0] for u in users for r in u.src[1:] if r.op.name == "RANGE" and r.arg[-1].name == "REDUCE")
