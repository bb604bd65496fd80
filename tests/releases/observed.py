"""Schedules programs on the tinygrad on PYTHONPATH, observed or as it is. Runs in a child, with other scripts.

    python observed.py keys PROGRAM...
    python observed.py TARGET PROGRAM...

Prints, as JSON, the keys of the kernels of each program without an observer, or the Capture of each program.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Iterator
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


def observe_programs(programs: list[str]) -> Iterator[tuple[str, Any]]:
    """Schedules one program after the other, observed; yields its path with the recorder, which has its schedules.
    Leaves out a program that a stock release cannot schedule with another PCONTIG."""
    from vmapdbg.child.listen.hooks import start
    from vmapdbg.child.listen.recorder import Recorder

    recorder = Recorder()
    start(recorder)
    importlib.import_module("tinygrad.tensor")
    for path in programs:
        recorder.forget()
        gc.collect()  # a UOp that is still there has the line of another program
        try:
            schedule_program(path)
        except RuntimeError:
            if "PCONTIG" not in os.environ:
                raise
        else:
            yield path, recorder


def compile_kernels(targets: str, programs: list[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name, the AST and the rendered program of each kernel of the programs, for each target."""
    from vmapdbg.child.listen.rendering import compile_kernel

    for path, recorder in observe_programs(programs):
        for kernel in [k for s in recorder.schedules for k in (s.passed.kernels if s.passed else ()) if k.is_compute]:
            for target in targets.split(","):
                compiled = compile_kernel(kernel.ast, target)
                yield f"{Path(path).stem} {compiled.name} {target}", kernel.ast, compiled


def list_keys(path: str, created: list[Any]) -> list[str]:
    from vmapdbg.child.listen.releases import list_launches

    created.clear()
    schedule_program(path)
    return [kernel.ast.key.hex() for one in created for kernel in list_launches(*one) if kernel.is_compute]


def watch_created() -> list[Any]:
    """Without an observer, only one function is wrapped."""
    from vmapdbg.child.listen.releases import schedule_module

    module = schedule_module()
    create, created = module.create_schedule, []

    def watched(*args: Any, **kwargs: Any) -> Any:
        made = create(*args, **kwargs)
        created.append((args[0], made))
        return made

    module.create_schedule = watched
    return created


def capture_program(path: str, recorder: Any, target: str) -> str:
    from vmapdbg.child.capture.schedule import build_schedules
    from vmapdbg.child.live import build_capture
    from vmapdbg.model.store import dump_compact
    from vmapdbg.page.sentences import fill_sentences

    schedules = build_schedules(recorder.schedules, target, keeps_failed=True)
    capture = build_capture(path, target, None, schedules, missing=recorder.missing)
    return dump_compact(fill_sentences(capture))


def main() -> None:
    wanted, *programs = sys.argv[1:]
    if wanted == "keys":
        importlib.import_module("tinygrad.tensor")
        created = watch_created()
        keys = {Path(path).stem: list_keys(path, created) for path in programs}
        print(json.dumps({"keys": keys, "tinygrad": sys.modules["tinygrad"].__file__}))
    else:
        observed = observe_programs(programs)
        print(json.dumps({Path(path).stem: capture_program(path, recorder, wanted) for path, recorder in observed}))


if __name__ == "__main__":
    main()
