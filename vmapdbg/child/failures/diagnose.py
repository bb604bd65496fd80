"""From an error that tinygrad raised to what it was doing: the place, the rewrite, the rule, the nodes."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from vmapdbg.child.failures.endless import LOOP, Endless, EndlessRewrite
from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.failures.loops import find_shared_loop
from vmapdbg.child.failures.rewrites import (
    explain_chain,
    explain_endless,
    find_rewrite,
    find_stacked,
    name_uop,
    shorten_place,
)
from vmapdbg.install.overlay import overlay_dir
from vmapdbg.model.capture import SnippetError
from vmapdbg.model.crash import Crash, RewriteStep
from vmapdbg.model.vocabulary import CrashKind, CrashStage
from vmapdbg.model.wording import first_line

UOp = Any

# a part of the path of a file -> what tinygrad does there; the innermost frame that has one decides
_STAGES: dict[str, CrashStage] = {
    "codegen": "codegen",
    "renderer": "codegen",
    "runtime": "run",
    "schedule": "schedule",
}
_SCHEDULING = frozenset(
    {"complete_create_schedule_with_vars", "create_schedule", "get_rangeify_map", "create_linear_with_vars"}
)
_LOWERING = frozenset({"get_program", "to_program", "do_to_program"})
_WRAPPERS = frozenset({"wrap_profile_matches", "quietly", "wrapper", "_wrapper"})
"""Functions around others, which have nothing to do with what is looked for."""
_MATCHING = "rewrite"
"""The method of PatternMatcher that tries its rules."""
_NAMED = re.compile(r"graph_rewrite\(.*\bname=\"([^\"]+)\"")
_MOST_OPERANDS = 4
_LOOKED_AT = 2
"""Of so many functions, the innermost first, the local variables are looked at for nodes."""


def explain_error(error: BaseException, nodes: KnownNodes) -> SnippetError:
    """Returns an error of a kernel, or of a snippet, with where tinygrad raised it."""
    return SnippetError(type(error).__name__, first_line(error), None, diagnose(error, nodes))


def diagnose(error: BaseException, nodes: KnownNodes) -> Crash | None:
    """Returns where tinygrad raised an error and what it was busy with; None where it was not tinygrad that did."""
    frames = list(_list_frames(error.__traceback__))
    own = [(frame, line) for frame, line in frames if _is_tinygrad(frame.f_code.co_filename)]
    if not own or _is_users(frames[-1][0], own[-1][0]):
        return None
    if isinstance(error, EndlessRewrite):
        own = _cut_to_loop(own, error.found.context)
    frame, line = own[-1]
    kind, steps, done = _explain_rewriting(error, own)
    rewrite, place = _find_rewrite(own)
    lowering = next((f.f_locals for f, _ in own if f.f_code.co_name in _LOWERING), {})
    ast, renderer = lowering.get("ast"), lowering.get("renderer")
    stage = _find_stage(own)
    return Crash(
        kind=kind,
        stage=stage,
        place=shorten_place(frame.f_code.co_filename, line),
        function=frame.f_code.co_qualname,
        rewrite=rewrite,
        rewrite_place=place,
        rule=_find_raising_rule(own),
        schedule=nodes.schedule if stage != "graph" else None,
        kernel=nodes.find_kernel(ast),
        nodes=tuple(sorted(_find_nodes(own, nodes))) if stage == "schedule" else (),
        steps=steps,
        done=done,
        method=_find_method(own) if stage == "graph" else None,
        operands=_name_operands(frame) if kind == "error" else (),
        shared_loop=None if ast is None or renderer is None else find_shared_loop(ast, renderer, rewrite),
    )


def explain_stopped(found: Endless, loop: FrameType) -> Crash:
    """Returns what tinygrad is doing in a rewrite that never ends, while its thread is still in it: `loop` is the frame
    of tinygrad's loop. Nothing is known of the nodes of a schedule."""
    own = [(frame, line) for frame, line in _list_callers(loop) if _is_tinygrad(frame.f_code.co_filename)]
    kind, steps = explain_endless(found)
    rewrite, place = _find_rewrite(own)
    return Crash(
        kind=kind,
        stage=_find_stage(own),
        place=shorten_place(loop.f_code.co_filename, loop.f_lineno),
        function=loop.f_code.co_qualname,
        rewrite=rewrite,
        rewrite_place=place,
        steps=steps,
        done=len(found.context.replace),
    )


def _list_callers(frame: FrameType | None) -> list[tuple[FrameType, int]]:
    """Returns a frame and those that it is called from, the outermost first, each with its line."""
    found: list[tuple[FrameType, int]] = []
    while frame is not None:
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]


def _list_frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yields the frames of a traceback, the outermost first, each with its line."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _cut_to_loop(own: list[tuple[FrameType, int]], context: Any) -> list[tuple[FrameType, int]]:
    """Returns the frames down to the loop of an endless rewrite, as it begins: where in it, or in what it calls, it was
    stopped from outside is chance."""
    for index in range(len(own) - 1, -1, -1):
        frame = own[index][0]
        if frame.f_code.co_name == LOOP and frame.f_locals.get("self") is context:
            return [*own[:index], (frame, frame.f_code.co_firstlineno)]
    return own


def _is_tinygrad(file: str) -> bool:
    module = sys.modules.get("tinygrad")
    folders = [str(overlay_dir())]
    if module is not None and module.__file__ is not None:
        folders.append(str(Path(module.__file__).parent))
    return os.path.abspath(file).startswith(tuple(folder + os.sep for folder in folders))


def _is_users(innermost: FrameType, own: FrameType) -> bool:
    """Tells whether an error came out of code that tinygrad called, and that is not a part of Python or of the tool."""
    from vmapdbg.child.listen.user_lines import find_user_file

    return innermost is not own and find_user_file(innermost.f_code.co_filename) not in (None, "<string>")


def _find_stage(own: Sequence[tuple[FrameType, int]]) -> CrashStage:
    for frame, _ in reversed(own):
        if frame.f_code.co_name in _LOWERING:
            return "codegen"
        if frame.f_code.co_name in _SCHEDULING:
            return "schedule"
        parts = frame.f_code.co_filename.split(os.sep)
        for part, stage in _STAGES.items():
            if part in parts[parts.index("tinygrad") :] if "tinygrad" in parts else ():
                return stage
    names = {frame.f_code.co_name for frame, _ in own}
    return "run" if names & {"run_schedule", "run_linear"} else "graph"


# *** rewrites


def _find_rewrite(own: Sequence[tuple[FrameType, int]]) -> tuple[str | None, str | None]:
    """Returns the name of the rewrite that was under way, and where it is asked for. What its arguments are made by
    belongs to it: its name stands on the same line."""
    for index in range(len(own) - 1, 0, -1):
        frame, line = own[index]
        place = frame.f_code.co_filename, line
        named = _NAMED.search(linecache.getline(*place))
        if named is not None:
            return named[1], shorten_place(*place)
        # what a rule or a property simplifies has no name; the rewrite around it has
        if find_rewrite(frame) is frame and (name := frame.f_locals.get("name")) is not None:
            callers = [(f, n) for f, n in reversed(own[:index]) if f.f_code.co_name not in _WRAPPERS]
            caller, number = callers[0] if callers else own[0]
            return name, shorten_place(caller.f_code.co_filename, number)
    return None, None


def _find_raising_rule(own: Sequence[tuple[FrameType, int]]) -> str | None:
    """Returns where the function of the innermost rule stands that was at work; none outside of what tinygrad does to
    schedule, or to make a program."""
    for index in range(len(own) - 1, 0, -1):
        name = own[index - 1][0].f_code
        if name.co_name in _LOWERING | _SCHEDULING:
            return None
        if name.co_qualname == f"PatternMatcher.{_MATCHING}":
            code = own[index][0].f_code
            return shorten_place(code.co_filename, code.co_firstlineno)
    return None


def _explain_rewriting(
    error: BaseException, own: Sequence[tuple[FrameType, int]]
) -> tuple[CrashKind, tuple[RewriteStep, ...], int | None]:
    if isinstance(error, EndlessRewrite):
        kind, steps = explain_endless(error.found)
        return kind, steps, len(error.found.context.replace)
    frame = own[-1][0]
    if frame.f_code.co_name != LOOP:
        return "error", (), None
    values = frame.f_locals
    context, done = values["self"], len(values["self"].replace)
    if isinstance(error, KeyError) and values.get("waitlist"):
        # from 0.14 on those that wait are put aside, and the loop ends without them
        entries = tuple(entry for waiting in values["waitlist"].values() for entry in waiting)
        return *explain_endless(Endless(context, entries)), done
    if "infinite loop" not in str(error):
        return "error", (), None
    if "seen" in values and "fixed_point" in str(error):
        return *explain_endless(Endless(context, growing=values["n"])), done
    return *explain_chain(context, find_stacked(values["stack"])), done


# *** nodes


def _find_nodes(own: Sequence[tuple[FrameType, int]], nodes: KnownNodes) -> set[int]:
    """Returns the nodes that the innermost functions have in their hands, but those that have to do with no rule."""
    found: set[int] = set()
    frames = [frame for frame, _ in own if frame.f_code.co_name != "__get__"]
    for frame in reversed(frames[-_LOOKED_AT:]):
        for value in list(frame.f_locals.values()):
            node = nodes.find(value) if type(value).__name__ == "UOp" else None
            if node is not None:
                found.add(node)
    if found:
        return found
    # the node that a rule was tried on
    for frame in reversed(frames):
        if frame.f_code.co_qualname == f"PatternMatcher.{_MATCHING}":
            node = nodes.find(frame.f_locals.get("uop"))
            if node is not None:
                return {node}
    return set()


def _name_operands(frame: FrameType) -> tuple[tuple[str, str], ...]:
    """Returns the UOps that a function has in its variables."""
    found = [(name, value) for name, value in frame.f_locals.items() if type(value).__name__ == "UOp"]
    # those of the step it was at were set last
    return tuple((name, name_uop(value)) for name, value in found if value.op.name != "SINK")[-_MOST_OPERANDS:]


def _find_method(own: Sequence[tuple[FrameType, int]]) -> str | None:
    """Returns the method of Tensor that the user called."""
    names = [frame.f_code.co_qualname.split(".") for frame, _ in own if frame.f_code.co_name not in _WRAPPERS]
    # in later releases, and for movements in 0.12, it has them from a class that UOp has them from, too
    own_names = (name[1] for name in names if len(name) == 2 and (name[0] == "Tensor" or name[0].endswith("Mixin")))
    return next((f"Tensor.{name}" for name in own_names), None)
