"""Finds what tinygrad was doing when it raised an error: the place, the rewrite, the rule, the nodes."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
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
Frames = Sequence[tuple[FrameType, int]]
"""Frames of tinygrad with their lines, the outermost first."""

# a folder in tinygrad -> what tinygrad does there; the innermost frame in such a folder decides
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
"""Functions around other functions."""
_MATCHING = "PatternMatcher.rewrite"
"""The function that tries the rules of a matcher."""
_NAMED = re.compile(r"graph_rewrite\(.*\bname=\"([^\"]+)\"")
_MOST_OPERANDS = 4
_SEARCHED = 2
"""So many innermost functions are searched for nodes in their variables."""


def explain_error(error: BaseException, nodes: KnownNodes) -> SnippetError:
    """Returns the error of a kernel, with the place where tinygrad raised it."""
    return SnippetError(type(error).__name__, first_line(error), None, diagnose(error, nodes))


def diagnose(error: BaseException, nodes: KnownNodes) -> Crash | None:
    """Returns where tinygrad raised an error, and what it was doing; None if tinygrad did not raise it."""
    frames = list(traceback.walk_tb(error.__traceback__))
    ours = _list_tinygrad(frames)
    if not ours or _is_users(frames[-1][0], ours[-1][0]):
        return None
    if isinstance(error, EndlessRewrite):
        ours = _cut_to_loop(ours, error.found.context)
    kind, steps, done = _explain_rewriting(error, ours)
    crash = _describe_place(ours, kind, steps, done)
    lowering = next((f.f_locals for f, _ in ours if f.f_code.co_name in _LOWERING), {})
    ast, renderer = lowering.get("ast"), lowering.get("renderer")
    return replace(
        crash,
        rule=_find_raising_rule(ours),
        schedule=nodes.schedule if crash.stage != "graph" else None,
        kernel=nodes.find_kernel(ast),
        nodes=tuple(sorted(_find_nodes(ours, nodes))) if crash.stage == "schedule" else (),
        method=_find_method(ours) if crash.stage == "graph" else None,
        operands=_name_operands(ours[-1][0]) if kind == "error" else (),
        shared_loop=None if ast is None or renderer is None else find_shared_loop(ast, renderer, crash.rewrite),
    )


def explain_stopped(found: Endless, loop: FrameType) -> Crash:
    """Returns what tinygrad is doing in a rewrite that never ends, while its thread is still in it: `loop` is the frame
    of tinygrad's loop. The nodes of a schedule are unknown."""
    ours = _list_tinygrad([*traceback.walk_stack(loop)][::-1])
    return _describe_place(ours, *explain_endless(found), len(found.context.replace))


def _describe_place(ours: Frames, kind: CrashKind, steps: tuple[RewriteStep, ...], done: int | None) -> Crash:
    frame, line = ours[-1]
    rewrite, place = _find_rewrite(ours)
    return Crash(
        kind=kind,
        stage=_find_stage(ours),
        place=shorten_place(frame.f_code.co_filename, line),
        function=frame.f_code.co_qualname,
        rewrite=rewrite,
        rewrite_place=place,
        steps=steps,
        done=done,
    )


def _list_tinygrad(frames: Frames) -> Frames:
    """Returns the frames whose code is tinygrad's or the overlay's."""
    module = sys.modules.get("tinygrad")
    folders = [str(overlay_dir())]
    if module is not None and module.__file__ is not None:
        folders.append(str(Path(module.__file__).parent))
    starts = tuple(folder + os.sep for folder in folders)
    return [pair for pair in frames if os.path.abspath(pair[0].f_code.co_filename).startswith(starts)]


def _cut_to_loop(ours: Frames, context: Any) -> Frames:
    """Returns the frames down to the start of the loop of an endless rewrite: where it was stopped is chance."""
    for index in range(len(ours) - 1, -1, -1):
        frame = ours[index][0]
        if frame.f_code.co_name == LOOP and frame.f_locals.get("self") is context:
            return [*ours[:index], (frame, frame.f_code.co_firstlineno)]
    return ours


def _is_users(innermost: FrameType, ours: FrameType) -> bool:
    """Returns whether tinygrad called other code that raised the error, which is neither Python's nor the tool's."""
    from vmapdbg.child.listen.user_lines import find_user_file

    return innermost is not ours and find_user_file(innermost.f_code.co_filename) not in (None, "<string>")


def _find_stage(ours: Frames) -> CrashStage:
    for frame, _ in reversed(ours):
        if frame.f_code.co_name in _LOWERING:
            return "codegen"
        if frame.f_code.co_name in _SCHEDULING:
            return "schedule"
        parts = frame.f_code.co_filename.split(os.sep)
        for part, stage in _STAGES.items():
            if "tinygrad" in parts and part in parts[parts.index("tinygrad") :]:
                return stage
    names = {frame.f_code.co_name for frame, _ in ours}
    return "run" if names & {"run_schedule", "run_linear"} else "graph"


# *** rewrites


def _find_rewrite(ours: Frames) -> tuple[str | None, str | None]:
    """Returns the name of the current rewrite, and the place of its call."""
    for index in range(len(ours) - 1, 0, -1):
        frame, line = ours[index]
        place = frame.f_code.co_filename, line
        # the arguments of the call may be computed now: the name is on the same line
        named = _NAMED.search(linecache.getline(*place))
        if named is not None:
            return named[1], shorten_place(*place)
        # a rewrite inside a rule has no name; the rewrite around it has
        if find_rewrite(frame) is frame and (name := frame.f_locals.get("name")) is not None:
            callers = [(f, n) for f, n in reversed(ours[:index]) if f.f_code.co_name not in _WRAPPERS]
            caller, number = callers[0] if callers else ours[0]
            return name, shorten_place(caller.f_code.co_filename, number)
    return None, None


def _find_raising_rule(ours: Frames) -> str | None:
    """Returns the place of the function of the innermost rule that was running, None outside of rewrites."""
    for index in range(len(ours) - 1, 0, -1):
        caller = ours[index - 1][0].f_code
        if caller.co_name in _LOWERING | _SCHEDULING:
            return None
        if caller.co_qualname == _MATCHING:
            code = ours[index][0].f_code
            return shorten_place(code.co_filename, code.co_firstlineno)
    return None


def _explain_rewriting(error: BaseException, ours: Frames) -> tuple[CrashKind, tuple[RewriteStep, ...], int | None]:
    if isinstance(error, EndlessRewrite):
        return *explain_endless(error.found), len(error.found.context.replace)
    frame = ours[-1][0]
    if frame.f_code.co_name != LOOP:
        return "error", (), None
    values = frame.f_locals
    context, done = values["self"], len(values["self"].replace)
    if isinstance(error, KeyError) and values.get("waitlist"):
        # since 0.14 entries that wait go to a list, and the loop ends without them
        entries = tuple(entry for waiting in values["waitlist"].values() for entry in waiting)
        return *explain_endless(Endless(context, entries)), done
    if "infinite loop" not in str(error):
        return "error", (), None
    if "seen" in values and "fixed_point" in str(error):
        return *explain_endless(Endless(context, growing=values["n"])), done
    return *explain_chain(context, find_stacked(values["stack"])), done


# *** nodes


def _find_nodes(ours: Frames, nodes: KnownNodes) -> set[int]:
    """Returns the nodes in the variables of the innermost functions, else the node that a rule was tried on."""
    frames = [frame for frame, _ in ours if frame.f_code.co_name != "__get__"]
    values = [value for frame in frames[-_SEARCHED:] for value in list(frame.f_locals.values())]
    found = [nodes.find(value) for value in values if type(value).__name__ == "UOp"]
    tried = [frame.f_locals.get("uop") for frame in reversed(frames) if frame.f_code.co_qualname == _MATCHING]
    if not any(node is not None for node in found):
        found = [node for node in map(nodes.find, tried) if node is not None][:1]
    return {node for node in found if node is not None}


def _name_operands(frame: FrameType) -> tuple[tuple[str, str], ...]:
    """Returns the UOps in the variables of a function."""
    found = [(name, value) for name, value in frame.f_locals.items() if type(value).__name__ == "UOp"]
    # the variables of the last step were set last
    return tuple((name, name_uop(value)) for name, value in found if value.op.name != "SINK")[-_MOST_OPERANDS:]


def _find_method(ours: Frames) -> str | None:
    """Returns the method of Tensor that the user called."""
    names = [frame.f_code.co_qualname.split(".") for frame, _ in ours if frame.f_code.co_name not in _WRAPPERS]
    # some methods of Tensor are in a mixin
    methods = (name[1] for name in names if len(name) == 2 and (name[0] == "Tensor" or name[0].endswith("Mixin")))
    return next((f"Tensor.{name}" for name in methods), None)
