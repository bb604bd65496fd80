"""Schedules programs on the tinygrad that is on PYTHONPATH and prints, as JSON, what came of each: runs in a child.

    python observed.py stock|observe PROGRAM...

`stock` does not observe at all: only the keys of the kernels are printed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("DEV", "NULL")
os.environ.setdefault("NULL", "1")


def schedule_program(path: str) -> None:
    from tinygrad import Tensor

    from vmapdbg.child.listen.releases import is_computed, schedule_tensors

    names: dict[str, Any] = {"__name__": "__main__", "__file__": path}
    exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), names)
    lazy = [v for v in names.values() if isinstance(v, Tensor) and not is_computed(v)]
    inside = {u for v in lazy for u in v.uop.base.toposort() if u is not v.uop.base}
    schedule_tensors([v for v in lazy if v.uop.base not in inside])


def list_keys(path: str, created: list[Any]) -> list[str]:
    from vmapdbg.child.listen.releases import list_launches

    created.clear()
    schedule_program(path)
    return [kernel.ast.key.hex() for one in created for kernel in list_launches(one)]


def watch_created() -> list[Any]:
    """Where nothing observes, the one thing that is wrapped."""
    from vmapdbg.child.listen.releases import schedule_module

    module = schedule_module()
    create, created = module.create_schedule, []

    def watched(*args: Any, **kwargs: Any) -> Any:
        created.append(create(*args, **kwargs))
        return created[-1]

    module.create_schedule = watched
    return created


def describe_program(path: str, recorder: Any) -> dict[str, Any]:
    recorder.forget()
    schedule_program(path)
    return {
        "keys": [k.ast.key.hex() for s in recorder.schedules for k in s.passed.kernels],
        "schedules": [describe_schedule(s) for s in recorder.schedules],
    }


def describe_schedule(schedule: Any) -> dict[str, Any]:
    from vmapdbg.child.capture.view import PassView

    passed = schedule.passed
    view = PassView(passed)
    lines = {u: origin.line for u, origin in passed.origins.items()}
    return {
        "line": schedule.line,
        "cached": schedule.cached,
        "not_in_key": schedule.not_in_key,
        "realized": [describe_realized(view, node) for node in passed.realized],
        "buffers": [describe_buffer(view, buffer) for buffer in passed.buffers],
        "kernels": [{"compute": k.is_compute, "node": view.ids.get(k.node)} for k in passed.kernels],
        "nodes": [{"op": u.op.name, "line": lines.get(u)} for u in passed.toposort],
    }


def describe_realized(view: Any, node: Any) -> dict[str, Any]:
    from vmapdbg.child.capture.reasons import WORDS, explain_realized

    realized = explain_realized(view, node)
    decisions = [decided.decision for decided in view.passed.realized[node]]
    assert realized is not None
    return {
        "id": view.ids.get(node),
        "op": node.op.name,
        "shape": list(map(int, node.shape)),
        "axes": list(realized.axes),
        "causes": [
            {
                "rule": reason.rule,
                "word": WORDS.get(reason.rule, reason.rule),
                "place": decision.place,
                "text": decision.text,
                "nodes": reason.nodes,
                "ranges": reason.ranges,
                "axis": reason.axis,
                "ends": len(set(decision.find_value("ending_ranges[x]") or ())),
            }
            for reason, decision in zip(realized.reasons, decisions, strict=True)
        ],
    }


def describe_buffer(view: Any, buffer: Any) -> dict[str, Any]:
    from vmapdbg.child.capture.buffers import explain_outcome

    reason = explain_outcome(view, buffer)
    return {
        "node": view.ids.get(buffer.node),
        "kept": buffer.stored,
        "rule": reason.rule,
        "file": None if reason.at is None else reason.at.file,
        "numbers": reason.numbers,
    }


def main() -> None:
    mode, *programs = sys.argv[1:]
    out: dict[str, Any] = {"programs": {}, "missing": []}
    if mode == "stock":
        importlib.import_module("tinygrad.tensor")
        created = watch_created()
        out["programs"] = {Path(p).stem: {"keys": list_keys(p, created)} for p in programs}
    else:
        from vmapdbg.child.listen.hooks import start

        recorder = start()
        importlib.import_module("tinygrad.tensor")
        for path in programs:
            gc.collect()  # a UOp that is still there has the line of another program
            out["programs"][Path(path).stem] = describe_program(path, recorder)
        out["missing"] = recorder.missing
    import tinygrad

    out["tinygrad"] = tinygrad.__file__
    print(json.dumps(out))


if __name__ == "__main__":
    main()
