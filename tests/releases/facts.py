"""Prints, as JSON, the facts about the kernels of programs on the tinygrad that is on PYTHONPATH, and what lint finds.

python facts.py PCONTIG TARGETS PROGRAM...
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from observed import schedule_program


def is_outside(access: Any) -> bool:
    return access.lowest is not None and not 0 <= access.lowest <= access.highest < access.size


def is_global_store(access: Any) -> bool:
    return access.kind == "store" and access.addrspace == "GLOBAL"


def describe_kernel(kernel: Any) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "ops": kernel.executed_ops,
        "bytes": kernel.bytes,
        "local": kernel.local_bytes,
        "threads": kernel.threads,
        "redundancy": kernel.redundancy,
        "undecided": [a.address for a in kernel.accesses if a.lowest is None],
        "outside": [a.address for a in kernel.accesses if is_outside(a)],
        "stored": [[a.size, a.stores, a.elements] for a in kernel.accesses if is_global_store(a)],
        "resets": [[reset.buffer, [loop.name for loop in reset.loops], reset.source_line] for reset in kernel.resets],
        "lines": kernel.source.split("\n"),
    }


def describe_program(path: str, recorder: Any, pcontig: int, targets: list[str]) -> dict[str, Any]:
    from tinygrad.helpers import Context

    recorder.forget()
    with Context(PCONTIG=pcontig):
        try:
            schedule_program(path)
        except RuntimeError as error:  # a stock release may not be able to schedule a program with this PCONTIG
            return {target: {"failed": str(error)} for target in targets}
        return {target: describe_schedules(path, recorder, target) for target in targets}


def describe_schedules(path: str, recorder: Any, target: str) -> dict[str, Any]:
    from vmapdbg.child.capture.schedule import build_schedules
    from vmapdbg.lint import lint_capture
    from vmapdbg.model import capture as model

    schedules = build_schedules(recorder.schedules, target)
    versions = model.Versions("", "", "")
    capture = model.Capture(model.SCHEMA, versions, path, target, {}, None, schedules, (), mode="observe")
    return {
        "kernels": [describe_kernel(kernel) for schedule in schedules for kernel in schedule.kernels],
        "findings": [[found.code, found.message, found.source_line] for found in lint_capture(capture)],
    }


def main() -> None:
    pcontig, targets, programs = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    from vmapdbg.child.listen.hooks import start

    recorder = start()
    importlib.import_module("tinygrad.tensor")
    print(json.dumps({Path(p).stem: describe_program(p, recorder, pcontig, targets) for p in programs}))


if __name__ == "__main__":
    main()
