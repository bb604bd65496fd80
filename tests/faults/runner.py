"""Lints every fault in one process: `python -m tests.faults.runner [NAME ...]` prints one JSON object a line.

Each snippet is scheduled twice, without the fault (the baseline, which must have no finding) and with it. Nothing runs.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import types
from typing import Any

os.environ.setdefault("DEV", "PYTHON")

import pytest

from vmapdbg.child.listen import hooks
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.run_snippet import schedule_lazy
from vmapdbg.install import overlay
from vmapdbg.install.patches import format_patches, parse_patches, patch_states
from vmapdbg.lint import RULES, lint_capture
from vmapdbg.model import capture as model
from vmapdbg.model.store import list_fields

FILE = "<fault>"
ERRORS = [rule.code for rule in RULES if rule.severity == "error"]


class Laboratory:
    """A tinygrad with the overlay whose schedules are captured one snippet at a time."""

    def __init__(self) -> None:
        # without the fusion patches: a fault is planted in a buffer, and a fused value has none
        overlay.install(format_patches(parse_patches("ambient-ranges,nested-ranges,close-ranges")))
        self.state: Any = sys.modules[f"{overlay.OVERLAY_PACKAGE}._state"]
        self.recorder = Recorder()
        hooks.start(self.recorder)
        import tinygrad  # noqa: F401

    def capture(self, snippet: str, target: str) -> model.Capture:
        """Schedules a snippet and returns what was captured; an exception is its error."""
        from tinygrad.engine.realize import method_cache
        from tinygrad.engine.schedule import schedule_cache

        from vmapdbg.child.capture.schedule import build_schedules
        from vmapdbg.child.listen import rendering
        from vmapdbg.child.program import programs

        for cache in (schedule_cache, method_cache):
            cache.clear()
        # a fault in the lowering gives the same AST another program
        programs.forget_programs(0)
        rendering.compiled_for_cpu.cache_clear()
        # a UOp that is still there has the line of another snippet
        gc.collect()
        recorder = self.recorder
        recorder.forget()
        error = None
        module = types.ModuleType("fault")
        schedules: tuple[model.Schedule, ...] = ()
        try:
            exec(compile(snippet, FILE, "exec"), module.__dict__)
            schedule_lazy(list(module.__dict__.values()), realize=False)
        except Exception as raised:
            error = model.SnippetError(type(raised).__name__, str(raised)[:200], None)
        try:
            schedules = build_schedules(recorder.schedules, target)
        except Exception as raised:
            error = model.SnippetError(type(raised).__name__, str(raised)[:200], None)
        patches = patch_states(frozenset(self.state.patches))
        versions = model.Versions("", overlay.TINYGRAD_VERSION, "")
        return model.Capture(model.SCHEMA, versions, FILE, target, patches, error, schedules, ())


def find_op(capture: model.Capture, finding: model.Finding) -> str | None:
    """Returns the op of the node that a finding names."""
    if finding.schedule is None or finding.node is None:
        return None
    return next((node.op for node in capture.schedules[finding.schedule].nodes if node.id == finding.node), None)


def find_line(snippet: str) -> str:
    """Returns the place of the line that the fault is about."""
    lines = snippet.splitlines()
    return f"{FILE}:{next(i for i, line in enumerate(lines, 1) if line.endswith('# here'))}"


def run(names: list[str]) -> None:
    laboratory = Laboratory()
    # what a fault is planted with needs tinygrad, and tinygrad needs the overlay
    from tests.faults.table import FAULTS

    for name, fault in FAULTS.items():
        if names and name not in names:
            continue
        healthy = laboratory.capture(fault.snippet, fault.target)
        with pytest.MonkeyPatch.context() as patch:
            fault.plant(patch)
            broken = laboratory.capture(fault.snippet, fault.target)
            findings = lint_capture(broken, healthy)
        place = find_line(fault.snippet)
        told = [f for f in findings if f.code in fault.codes]
        right = [f.line == place and (not fault.op or find_op(broken, f) == fault.op) for f in findings]
        row = {
            "name": name,
            "what": fault.what,
            "codes": fault.codes,
            "unseen": fault.unseen,
            "wrong_values": fault.wrong_values,
            "target": fault.target,
            "healthy": lint_capture(healthy, codes=ERRORS),
            "healthy_error": healthy.error,
            "error": broken.error,
            "findings": findings,
            "found": bool(told),
            # the place of the first finding that names the right line and node, from 1
            "rank": next((i for i, is_right in enumerate(right, 1) if is_right), None),
        }
        print(json.dumps(row, default=list_fields), flush=True)


if __name__ == "__main__":
    run(sys.argv[1:])
