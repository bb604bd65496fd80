"""Runs one program and sorts its result."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .evaluate import Trace, evaluate
from .ops import Array
from .program import Program, derived_results, has_derivative
from .source import to_source, to_stock_source
from .worker import serve

ROOT = Path(__file__).parents[2]
# documented sentences for programs whose own steps ask for something impossible
REFUSALS = ("is not in the graph of the outputs", "didn't JIT anything!")

# what stock tinygrad 0.12.0 gets wrong without any scope
# the end of the traceback where stock's codegen finds no order for the loops of a kernel, as in
# `y = Tensor.cat(x, x)[[5, 4]].min(0).T; (y - y * 0.7)[:, Tensor([1])]` for an x of shape (3, 5, 5) that is padded
NO_LOOP_ORDER = "assert y.src[1] not in x.backward_slice_with_self"
# stock's codegen moves a load out of a reduce and back for ever where masks of several padded values meet, as in
# `v[[1, 1]] = v[[1, 1]] * 0.5` inside a scope of method="pad_reduce" that is flipped after it
NO_END_OF_LOADS = "in reduce_load_collapse"
NO_END = "infinite loop in graph_rewrite"

OK, WRONG, CRASH, HANG, REFUSED, UNKNOWN = "ok", "wrong values", "crash", "hang", "refused", "no reference"
STOCK = "stock fails too"  # the same program without scopes fails in the same way
CODEGEN = "right without codegen's optimizations"  # which are stock's
FAILURES = (WRONG, CRASH, HANG)
# a worker that has served many programs holds their caches
PROGRAMS_EACH = 400


@dataclass(frozen=True)
class Outcome:
    kind: str
    detail: str = ""
    traceback: str = ""

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES

    def same_as(self, other: Outcome) -> bool:
        """Whether it is the same failure, as far as the shrinker can see."""
        return self.kind == other.kind and (self.kind != CRASH or self.headline == other.headline)

    @property
    def headline(self) -> str:
        """The exception and the words of its message, without numbers and names of values."""
        words = [w for w in self.detail.split() if w.isalpha()]
        return " ".join([self.detail.split(":")[0], *words[:4]])


class Runner:
    """A worker process that is started again after a hang or a crash of the interpreter."""

    def __init__(self, timeout: float = 60):
        self.timeout = timeout
        self.context = multiprocessing.get_context("spawn")
        self.process: Any = None
        self.served = 0

    def start(self) -> None:
        self.connection, theirs = self.context.Pipe()
        self.process = self.context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.served = 0

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None

    def ask(self, source: str, plain: bool = False) -> tuple[str, Any]:
        if self.served >= PROGRAMS_EACH:
            self.stop()
        if self.process is None:
            self.start()
        self.served += 1
        self.connection.send((source, plain))
        try:
            if self.connection.poll(self.timeout):
                return self.connection.recv()
        except (EOFError, OSError):
            self.stop()
            return "Died", ("the interpreter died", "")
        self.stop()
        return "Hang", (f"no answer in {self.timeout:.0f} s", "")

    def check(self, program: Program) -> Outcome:
        """Raises Invalid for what is not a program."""
        want, trace = evaluate(program)
        if has_derivative(program):
            kind, theirs = self.ask(to_stock_source(program))
            if kind != "ok":
                return Outcome(UNKNOWN, f"{kind}: {theirs[0]}", theirs[1])
            # what does not depend on a derivative numpy knows, and numpy has no faults of its own
            want = [b if d else a for a, b, d in zip(want, theirs, derived_results(program), strict=True)]
            if not is_usable(want):
                return Outcome(UNKNOWN, "values too large")
        kind, answer = self.ask(to_source(program))
        outcome = judge(kind, answer, want, loose=is_loose(trace))
        if outcome.failed and judge(*self.ask(to_source(program), plain=True), want, is_loose(trace)).kind == OK:
            return Outcome(CODEGEN, f"{outcome.kind}: {outcome.detail}")
        if outcome.failed and has_derivative(program) and not is_right(to_stock_source(program)):
            return Outcome(UNKNOWN, "stock computes the reference wrong")
        if outcome.failed and not has_derivative(program):
            kind, answer = self.ask(to_stock_source(program))
            if judge(kind, answer, want, loose=is_loose(trace)).same_as(outcome):
                return Outcome(STOCK, f"{outcome.kind}: {outcome.detail}")
        return outcome


def is_right(source: str) -> bool:
    """Whether `vmapdbg check` finds no fault in a program."""
    command = [sys.executable, "-m", "vmapdbg", "check", "-c", source]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True).returncode != 1


def is_usable(want: list[Array]) -> bool:
    return all(np.all(np.isfinite(w)) and np.max(np.abs(w)) < 1e4 for w in want)


def is_loose(trace: Trace) -> bool:
    return any(v.dtype == np.float32 for v in trace.values.values())


def judge(kind: str, answer: Any, want: list[Array], loose: bool) -> Outcome:
    if kind == "Hang":
        return Outcome(HANG, answer[0])
    if kind == "AssertionError" and NO_LOOP_ORDER in answer[1]:
        return Outcome(STOCK, "codegen finds no order for the loops of a kernel")
    if NO_END in answer[0] and NO_END_OF_LOADS in answer[1]:
        return Outcome(STOCK, "codegen moves loads in and out of a reduce for ever")
    if kind != "ok":
        refused = any(r in answer[0] for r in REFUSALS)
        return Outcome(REFUSED if refused else CRASH, f"{kind}: {answer[0]}", answer[1])
    for i, (got, right) in enumerate(zip(answer, want, strict=True)):
        if wrong := difference(got, right, loose):
            return Outcome(WRONG, f"result {i}: {wrong}")
    return Outcome(OK)


def difference(got: Array, want: Array, loose: bool) -> str:
    """What is wrong, or an empty text."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"shape {got.shape} and {got.dtype} instead of {want.shape} and {want.dtype}"
    rtol = 2e-3 if loose else 1e-7
    scale = max(1.0, float(np.max(np.abs(want.astype(np.float64)))))
    bad = ~np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=rtol * 0.1 * scale)
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{bad.sum()} of {bad.size} elements are wrong, at {at} it is {got[at]} and not {want[at]}"
