"""Finds what tinygrad was doing when it raised an error: the place, the rewrite, the rule, the nodes."""

import contextlib
import linecache
import os
import re
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import Any

from vmapdbg.child.failures import endless
from vmapdbg.child.listen.guard import setting
from vmapdbg.child.listen.user_lines import find_user_file, make_absolute
from vmapdbg.install.overlay import overlay_dir
from vmapdbg.model.capture import SnippetError
from vmapdbg.model.crash import Crash, Refusal, SharedLoop
from vmapdbg.model.ops import RESHAPING, STAGE_OPS
from vmapdbg.model.vocabulary import CrashStage
from vmapdbg.model.wording import first_line

UOp = Any
Frames = Sequence[tuple[FrameType, int]]
"""Frames of tinygrad with their lines, the outermost first."""

# a folder in tinygrad -> what tinygrad does there; the innermost frame in such a folder decides
_STAGES: dict[str, CrashStage] = {"codegen": "codegen", "renderer": "codegen", "runtime": "run", "schedule": "schedule"}
_SCHEDULING = {"complete_create_schedule_with_vars", "create_schedule", "get_rangeify_map", "create_linear_with_vars"}
_LOWERING = frozenset({"get_program", "to_program", "do_to_program"})
_WRAPPERS = frozenset({"wrap_profile_matches", "quietly", "wrapper", "_wrapper", "__wrapper"})
"""Functions around other functions."""
_MATCHING = "PatternMatcher.rewrite"  # the function that tries the rules of a matcher
_NAMED = re.compile(r"graph_rewrite\(.*\bname=\"([^\"]+)\"")
# line and message of an error in the source, as compilers write it
_COMPILE_ERROR = re.compile(r":(\d+):\d+: (?:fatal )?error: (.*)")
_COMPILING = 20  # seconds for a compiler that runs again
_MOST_OPERANDS = 4
_SEARCHED = 2  # so many innermost functions are searched for nodes in their variables
_VIEWS = RESHAPING | {"AFTER", "INDEX", "STORE", "END", *STAGE_OPS}  # these ops only read a value, or store it


class KnownNodes:
    """The nodes of a run of a pass (None: the graph was refused), for schedule number `schedule`; nothing is known
    without arguments. `following` maps a UOp to the UOp that rewrites made it from."""

    def __init__(self, schedule: int | None = None, passed: Any = None, following: Mapping[UOp, UOp] | None = None):
        self.schedule, self.following = schedule, following or {}
        self.ids, self.asts, self.held = dict[UOp, int](), list[UOp](), dict[UOp, UOp]()
        if passed is not None:
            from vmapdbg.child.capture.view import PassView

            view = PassView(passed)
            self.ids, self.held = view.ids, passed.held
            self.asts += (launch.ast for launch in view.launches if launch.is_compute)
        self._by_tag = {tag: u for u in self.ids for tag in _tags_of(u)}

    def find(self, u: UOp) -> int | None:
        """Returns the id of the node that a UOp has the value of, None if it is unknown."""
        while u is not None:
            tagged = map(self._by_tag.get, _tags_of(u))
            options = getattr(u.arg, "node", None)
            for node in (u, self.held.get(u), self.following.get(u), options, *tagged):
                if node in self.ids:
                    return self.ids[node]
            if u.op.name not in _VIEWS or not u.src:
                return None
            u = u.src[0]
        return None


def _tags_of(u: UOp) -> list[int]:
    """tinygrad 0.12 numbers nodes; rewrites of a schedule keep the numbers."""
    return [tag for tag in u.tag if isinstance(tag, int)] if isinstance(u.tag, tuple) else []


def read_nodes(recorder: Any) -> KnownNodes:
    """Returns what the recorder knows of the nodes of its last schedule."""
    schedules = recorder.schedules
    return KnownNodes(len(schedules) - 1, schedules[-1].passed, recorder.origin) if schedules else KnownNodes()


def explain_error(error: BaseException, nodes: KnownNodes, line: str | None = None) -> SnippetError:
    """Returns an error with what tinygrad was doing if tinygrad raised it; `line` is the user's."""
    return SnippetError(type(error).__name__, first_line(error), line, diagnose(error, nodes))


def diagnose(error: BaseException, nodes: KnownNodes) -> Crash | None:
    """Returns where tinygrad raised an error, and what it was doing; None if tinygrad did not raise it."""
    frames = list(traceback.walk_tb(error.__traceback__))
    ours = _list_tinygrad(frames)
    if not ours:
        return None
    innermost = frames[-1][0]
    # tinygrad may have called other code that raised the error, which is neither Python's nor the tool's
    if innermost is not ours[-1][0] and find_user_file(innermost.f_code.co_filename) not in (None, "<string>"):
        return None
    if isinstance(error, endless.EndlessRewrite):
        ours = _cut_to_loop(ours, error.found.context)
    rewriting = _explain_rewriting(error, ours)
    crash = _describe_place(ours, rewriting)
    if rewriting is None:
        crash = replace(crash, operands=_name_operands(ours[-1][0]))
    lowering = next((f.f_locals for f, _ in ours if f.f_code.co_name in _LOWERING), {})
    ast, renderer = lowering.get("ast"), lowering.get("renderer")
    if ast is not None:
        # code generation may change the options of an AST
        kernel = next((number for number, one in enumerate(nodes.asts) if one.src == ast.src), None)
        crash = replace(crash, kernel=kernel)
        if renderer is not None:
            crash = replace(crash, shared_loop=find_shared_loop(ast, renderer, crash.rewrite))
    if crash.stage == "graph":
        crash = replace(crash, method=_find_method(ours))
    else:
        current = sorted(_find_nodes(ours, nodes)) if crash.stage == "schedule" else ()
        crash = replace(crash, schedule=nodes.schedule, nodes=tuple(current))
    return replace(crash, rule=_find_raising_rule(ours), refusal=_find_refusal(error, ours))


def _find_refusal(error: BaseException, ours: Frames) -> Refusal | None:
    """Returns what a compiler says of a source. A compiler that is a process has said it on stderr: it runs again."""
    source = next((f.f_locals.get("src") for f, _ in reversed(ours) if f.f_code.co_name == "compile"), None)
    if not isinstance(source, str):
        return None
    said = str(error)
    if isinstance(error, subprocess.CalledProcessError):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            again = subprocess.run(error.cmd, input=source.encode(), capture_output=True, timeout=_COMPILING)
            said = again.stderr.decode(errors="replace")
    lines = source.splitlines()
    for number, message in _COMPILE_ERROR.findall(said):
        if 0 < int(number) <= len(lines):
            return Refusal(message.strip(), int(number), lines[int(number) - 1].strip())
    return None


def explain_stopped(found: endless.Endless, loop: FrameType) -> Crash:
    """Returns what tinygrad is doing in a rewrite that never ends, at the frame of its `loop`. No nodes are known."""
    return _describe_place(_list_tinygrad([*traceback.walk_stack(loop)][::-1]), endless.explain_endless(found))


def _describe_place(ours: Frames, rewriting: endless.Explanation | None) -> Crash:
    frame, line = ours[-1]
    kind, steps, done = rewriting or ("error", (), None)
    place = endless.shorten_place(frame.f_code.co_filename, line)
    what = kind, _find_stage(ours), place, frame.f_code.co_qualname
    return Crash(*what, *_find_rewrite(ours), steps=steps, done=done)


def _list_tinygrad(frames: Frames) -> Frames:
    file = getattr(sys.modules.get("tinygrad"), "__file__", None)
    folders = [overlay_dir(), *([] if file is None else [Path(file).parent])]
    starts = tuple(f"{folder}{os.sep}" for folder in folders)
    return [pair for pair in frames if make_absolute(pair[0].f_code.co_filename).startswith(starts)]


def _cut_to_loop(ours: Frames, context: Any) -> Frames:
    """Returns the frames down to the start of the loop of an endless rewrite: where it was stopped is chance."""
    for index in range(len(ours) - 1, -1, -1):
        frame = ours[index][0]
        if frame.f_code.co_name == endless.LOOP and frame.f_locals.get("self") is context:
            return [*ours[:index], (frame, frame.f_code.co_firstlineno)]
    return ours


def _find_stage(ours: Frames) -> CrashStage:
    for frame, _ in reversed(ours):
        if frame.f_code.co_name in _LOWERING:
            return "codegen"
        if frame.f_code.co_name in _SCHEDULING:
            return "schedule"
        _, _, below = frame.f_code.co_filename.replace(os.sep, "/").partition("/tinygrad/")
        for folder, stage in _STAGES.items():
            if folder in below.split("/"):
                return stage
    names = {frame.f_code.co_name for frame, _ in ours}
    return "run" if names & {"run_schedule", "run_linear"} else "graph"


# *** rewrites


def find_rewrite_at(frame: FrameType) -> tuple[str | None, str | None]:
    """Returns the name of the rewrite in which a frame is, and the place of its call; None without a name."""
    return _find_rewrite(_list_tinygrad([*traceback.walk_stack(frame)][::-1]))


def _find_rewrite(ours: Frames) -> tuple[str | None, str | None]:
    for index in range(len(ours) - 1, 0, -1):
        frame, line = ours[index]
        place = frame.f_code.co_filename, line
        # the arguments of the call may be computed now (CFGContext): the name is on the same line
        named = _NAMED.search(linecache.getline(*place))
        if named is not None:
            return named[1], endless.shorten_place(*place)
        # a rewrite inside a rule has no name; the rewrite around it has
        if frame.f_code.co_name in endless.REWRITES and (name := frame.f_locals.get("name")) is not None:
            callers = [pair for pair in reversed(ours[:index]) if pair[0].f_code.co_name not in _WRAPPERS]
            caller, number = next(iter(callers), ours[0])
            return name, endless.shorten_place(caller.f_code.co_filename, number)
    return None, None


def _find_raising_rule(ours: Frames) -> str | None:
    """Returns the place of the function of the innermost rule that was running, None outside of rewrites."""
    for index in range(len(ours) - 1, 0, -1):
        caller = ours[index - 1][0].f_code
        if caller.co_name in _LOWERING | _SCHEDULING:
            return None
        if caller.co_qualname == _MATCHING:
            code = ours[index][0].f_code
            return endless.shorten_place(code.co_filename, code.co_firstlineno)
    return None


def _explain_rewriting(error: BaseException, ours: Frames) -> endless.Explanation | None:
    """Explains a rewrite that never ends, from the error of the watcher or of tinygrad's loop. None: another error."""
    if isinstance(error, endless.EndlessRewrite):
        return endless.explain_endless(error.found)
    frame = ours[-1][0]
    if frame.f_code.co_name != endless.LOOP:
        return None
    values = frame.f_locals
    if isinstance(error, KeyError) and values.get("waitlist"):
        # since 0.14 entries that wait go to a list, and the loop ends without them
        entries = tuple(entry for waiting in values["waitlist"].values() for entry in waiting)
        return endless.explain_endless(endless.Endless(values["self"], entries))
    if "infinite loop" not in str(error):
        return None
    if "seen" in values and "fixed_point" in str(error):
        return endless.explain_endless(endless.Endless(values["self"], growing=values["n"]))
    last = list(values["stack"])[-2 * endless.MOST_STEPS :]  # the end of a stack that only grows
    return endless.explain_chain(values["self"], [(node, made) for node, stage, made in last if stage == 2])


# *** nodes


def _find_nodes(ours: Frames, nodes: KnownNodes) -> set[int]:
    """Returns the nodes in the variables of the innermost functions, else the node that a rule was tried on."""
    frames = [frame for frame, _ in ours if frame.f_code.co_name != "__get__"]
    values = [value for frame in frames[-_SEARCHED:] for value in list(frame.f_locals.values())]
    found = {nodes.find(value) for value in values if type(value).__name__ == "UOp"}
    for frame in reversed(frames):
        if found <= {None} and frame.f_code.co_qualname == _MATCHING:
            found.add(nodes.find(frame.f_locals.get("uop")))
    return {node for node in found if node is not None}


def _name_operands(frame: FrameType) -> tuple[tuple[str, str], ...]:
    found = [(name, value) for name, value in frame.f_locals.items() if type(value).__name__ == "UOp"]
    # the variables of the last step were set last
    return tuple((name, endless.name_uop(value)) for name, value in found if value.op.name != "SINK")[-_MOST_OPERANDS:]


def _find_method(ours: Frames) -> str | None:
    # some methods of Tensor are in a mixin
    names = [frame.f_code.co_qualname for frame, _ in ours if frame.f_code.co_name not in _WRAPPERS]
    methods = (match[1] for name in names if (match := re.fullmatch(r"(?:Tensor|[^.]*Mixin)\.([^.]+)", name)))
    return next((f"Tensor.{method}" for method in methods), None)


def find_shared_loop(ast: UOp, renderer: Any, last: str | None) -> SharedLoop | None:
    """Returns a loop with several ENDs, which cannot be ordered; None without. `last` is the rewrite that failed."""
    rewrites = _lower_again(ast, renderer, last)
    for name, place, sink in rewrites:
        ends = _count_ranges(sink, "END")
        shared = next((r for r, count in ends.items() if count > 1), None)
        if shared is None:
            continue
        in_ast = _count_ranges(ast, "REDUCE")[shared]
        counts = ((_count_ranges(graph, "REDUCE")[shared], other, where) for other, where, graph in rewrites)
        # the first rewrite with the most, if that is more
        grown = max([(in_ast, None, None), *counts], key=itemgetter(0))
        return SharedLoop(f"r{shared}", ends[shared], name, place, in_ast, *grown)
    return None


def _lower_again(ast: UOp, renderer: Any, last: str | None) -> list[tuple[str, str, UOp]]:
    """Returns the name, the place and the result of each rewrite of code generation before the rewrite that failed."""
    import tinygrad.codegen

    from vmapdbg.child.live import process_kept

    codegen: Any = tinygrad.codegen
    seen: list[tuple[str, str, UOp]] = []
    if not hasattr(codegen, "full_rewrite_to_sink"):
        return seen
    rewrite = codegen.graph_rewrite

    def listen(sink: UOp, *args: Any, **options: Any) -> UOp:
        name = options.get("name")
        if name is not None and name == last:
            raise RuntimeError("the rewrite that failed comes next")
        result = rewrite(sink, *args, **options)
        caller = sys._getframe(1)
        seen.append((str(name), endless.shorten_place(caller.f_code.co_filename, caller.f_lineno), result))
        return result

    suppressed = contextlib.suppress(Exception, endless.EndlessRewrite)  # it fails again, or stops
    with setting(codegen, "graph_rewrite", listen), suppressed, process_kept():
        codegen.full_rewrite_to_sink(ast, renderer, optimize=ast.tag is None)
    return seen


def _count_ranges(sink: UOp, op: str) -> Counter[int]:
    """Counts the ENDs, or the REDUCEs, of each loop by its number."""
    users = [u for u in sink.toposort() if u.op.name == op]
    return Counter(r.arg[0] for u in users for r in u.src[1:] if r.op.name == "RANGE" and r.arg[-1].name == "REDUCE")
