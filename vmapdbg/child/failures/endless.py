"""Finds and stops rewrites of tinygrad that never end, and names the rules that cause them. tinygrad's loop takes an
entry (node, stage, result so far) off a stack, and puts it back if it must wait for another node. If every entry waits,
and some wait in a circle, the rewrite never ends. The state of the loop decides, not time."""

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from vmapdbg.child.memory import name_dtype
from vmapdbg.model.crash import RewriteStep
from vmapdbg.model.vocabulary import CrashKind

UOp = Any
Entry = tuple[UOp, int, UOp]
Explanation = tuple[CrashKind, tuple[RewriteStep, ...], int]
"""The kind of an endless rewrite, its steps, and the number of nodes that it has finished."""

LOOP = "unified_rewrite"
"""The function of tinygrad with the loop."""
REWRITES = ("graph_rewrite", "graph_rewrite_map")
MOST_REWRITES = 20_000
"""If rules rewrite one node more often, the rewrite never ends."""
MOST_STEPS = 64
"""How many rewrites of one node are checked, to find which rules alternate."""
_PERIOD = 0.3  # seconds between two looks of the watcher


@dataclass(frozen=True)
class Endless:
    """Why a rewrite of RewriteContext `context` never ends: entries wait, or `growing` is rewritten again and again."""

    context: Any
    waiting: tuple[Entry, ...] = ()
    growing: UOp = None

    def is_same(self, other: "Endless | None") -> bool:
        """Returns whether the same entries of the same rewrite wait as before."""
        return other is not None and other.context is self.context and set(other.waiting) == set(self.waiting)


class EndlessRewrite(BaseException):
    """Ends an endless rewrite. No Exception: the snippet must not catch it. A thread raises a subclass with `found`."""

    found: Endless

    def __str__(self) -> str:
        return "tinygrad rewrites a graph without end"


def find_frame(frame: FrameType | None, *functions: str) -> FrameType | None:
    """Returns the innermost frame of one of some functions: the frame itself, or a frame that it is called from."""
    while frame is not None and frame.f_code.co_name not in functions:
        frame = frame.f_back
    return frame


# *** whether a rewrite never ends


def find_endless(frame: FrameType) -> Endless | None:
    """Returns why a frame's loop never ends, None if it may: entries must wait twice, as another thread may run it."""
    # a copy: since Python 3.13 the original follows the frame
    values = dict(frame.f_locals)
    context, stack = values.get("self"), values.get("stack")
    if context is None or stack is None:
        return None
    if len(values.get("seen") or ()) > MOST_REWRITES:
        return Endless(context, growing=values.get("n"))
    done: Mapping[UOp, UOp] = context.replace
    entries: list[Entry] = [*stack]
    if {"n", "stage", "new_n"} <= values.keys():
        entries.append((values["n"], values["stage"], values["new_n"]))  # the loop took this entry off the stack
    if not all(find_missing(entry, done) is not None for entry in entries) or not find_circles(entries, done):
        return None
    return Endless(context, tuple(dict.fromkeys(entries)))


def find_missing(entry: Entry, done: Mapping[UOp, UOp]) -> UOp | None:
    """Returns the node that an entry waits for, None if it waits for none."""
    node, stage, made = entry
    if node in done or stage == 0:
        return None
    wanted = made.src if stage == 1 else (made,)
    return next((one for one in wanted if one not in done), None)


def find_circles(entries: Sequence[Entry], done: Mapping[UOp, UOp]) -> list[list[Entry]]:
    """Returns circles of entries: each entry waits for the next, and the last for the first."""
    waiting = {entry[0]: entry for entry in entries}
    circles: list[list[Entry]] = []
    visited: set[UOp] = set()
    for entry in entries:
        path: dict[UOp, None] = {}
        node: UOp | None = entry[0]
        while node in waiting and node not in path and node not in visited:
            path[node] = None
            node = find_missing(waiting[node], done)
        visited.update(path)
        if node in path:
            nodes = list(path)
            circles.append([waiting[one] for one in nodes[nodes.index(node) :]])
    return circles


class Watcher:
    """Watches its creator's thread from `start` on. `ends` gets the frame of tinygrad's loop before a rewrite stops."""

    def __init__(self, ends: Callable[[Endless, FrameType], object] | None = None) -> None:
        self.ends, self._watched = ends, threading.get_ident()
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="vmapdbg", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        suspected: Endless | None = None
        while not self._ended.wait(_PERIOD):
            loop = find_frame(sys._current_frames().get(self._watched), LOOP)
            found = None
            # the other thread goes on: its variables and dictionaries may change at any time
            with contextlib.suppress(RuntimeError, KeyError):
                found = None if loop is None else find_endless(loop)
            if loop is not None and found is not None and (found.growing is not None or found.is_same(suspected)):
                self._stop_rewrite(found, loop)
                found = None
            suspected, found, loop = found, None, None  # keep nothing of a rewrite that has ended

    def _stop_rewrite(self, found: Endless, loop: FrameType) -> None:
        if self.ends is not None:
            self.ends(found, loop)
        kind = type("EndlessRewrite", (EndlessRewrite,), {"found": found, "__module__": "vmapdbg"})
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._watched), ctypes.py_object(kind))


# *** its name, its nodes, its rules


def explain_endless(found: Endless) -> Explanation:
    """Explains an endless rewrite by its circle of waiting nodes, or by the rules that rewrite one node."""
    context = found.context
    if not found.waiting:
        chain: list[tuple[UOp, UOp]] = []  # the results of bottom-up rules, one after the other
        node = found.growing
        while len(chain) < MOST_STEPS and (made := context.bpm_cache.get(node)) is not None:
            chain.append((node, made))
            node = made
        return explain_chain(context, chain)
    circles: list[list[RewriteStep]] = []
    for circle in find_circles(found.waiting, context.replace):
        steps = [_explain_step(context, node, made, (context.bpm, context.pm)) for node, _, made in circle]
        # it starts with a node that a rule replaced
        rotated = [steps[index:] + steps[:index] for index in range(len(steps))]
        circles.append(min(rotated, key=lambda steps: (steps[0].becomes is None, str(steps))))

    # the circle with most rules; the same circle wherever the loop was stopped
    circles.sort(key=lambda steps: (sum(step.becomes is not None for step in steps), str(steps)))
    return "waits", tuple(circles[-1] if circles else ()), len(context.replace)


def explain_chain(context: Any, made: list[tuple[UOp, UOp]]) -> Explanation:
    """Explains a rewrite in which rules rewrite one node again and again; `made` has each node and its result."""
    first: dict[UOp, int] = {}
    steps: list[RewriteStep] = []
    for number, (node, result) in enumerate(made):
        first.setdefault(node, number)
        steps.append(_explain_step(context, node, result, (context.pm, context.bpm)))
        if result in first:
            return "repeats", tuple(steps[first[result] :]), len(context.replace)
    rules = [step.rule for step in steps]
    # up to the step where the rules start again
    period = next((n for n in range(1, len(rules)) if rules[n:] == rules[:-n]), len(rules))
    return "grows", tuple(steps[:period]), len(context.replace)


def find_rule(context: Any, matchers: Sequence[Any], node: UOp, fits: Callable[[UOp | None], bool]) -> str | None:
    """Returns the `file:line` of the first rule of PatternMatchers whose answer for a node fits, None if none does."""
    rules = [rule for matcher in matchers if matcher is not None for rule in matcher.pdict.get(node.op, ())]
    for pattern, match, *_ in rules:
        # a rule may need a state that has changed
        with contextlib.suppress(Exception):
            if fits(match(node, context.ctx)):
                return shorten_place(*pattern.location)
    return None


def _explain_step(context: Any, node: UOp, made: UOp, matchers: Sequence[Any]) -> RewriteStep:
    if made is node:
        return RewriteStep(name_uop(node), None, None)  # only its sources were replaced
    place = find_rule(context, matchers, node, lambda answer: answer is made)
    added = tuple(name_uop(source) for source in made.src if source not in node.src)
    return RewriteStep(name_uop(node), name_uop(made), place, added)


def name_uop(u: UOp) -> str:
    """Returns a short description of a UOp: `RANGE r4`, `END of r4`, `CONST 2.0`, `ADD float`."""
    op = u.op.name
    if op == "RANGE":
        return f"RANGE {_name_range(u)}"
    if op == "END":
        return f"END of {', '.join(_name_range(r) for r in u.src[1:] if r.op.name == 'RANGE')}"
    if op == "CONST":
        return f"CONST {u.arg}"
    return op if op in {"SINK", "STORE", "GROUP"} else f"{op} {name_dtype(u.dtype)}"


def _name_range(r: UOp) -> str:
    # tinygrad renders its sources too, which may be a circle
    return "r" + "_".join(str(part) for part in r.arg if isinstance(part, int))


def shorten_place(file: str, line: int) -> str:
    """Returns `tinygrad/schedule/rangeify.py:236`."""
    _, folder, below = file.replace(os.sep, "/").rpartition("/tinygrad/")
    return f"tinygrad/{below}:{line}" if folder else f"{file}:{line}"
