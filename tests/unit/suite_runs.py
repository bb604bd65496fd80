"""Saved runs made by hand, so that tests of comparing them need no tinygrad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captures import make_capture, make_kernel, make_node, make_schedule

from vmapdbg.model.capture import Kernel, Node, Realized, Schedule, Versions
from vmapdbg.model.store import append_line
from vmapdbg.suite.saved import (
    RUN_SCHEMA,
    AskedSchedule,
    LoadedRun,
    SavedRun,
    load_run,
    name_test,
    save_schedule,
    start_run,
)

# a row is summed up, and divided by its sum
NODES = (
    make_node(0, "BUFFER"),
    make_node(1, "REDUCE_AXIS", src=(0,)),
    make_node(2, "MUL", src=(0, 1), realized=Realized((), "output", "output")),
)


def save_run(
    folder: Path, tests: Mapping[str, Sequence[Schedule]], status: int | None = 0, **changes: Any
) -> LoadedRun:
    """Writes a saved run by the dataclasses that the program's processes use, and reads it."""
    fields: dict[str, Any] = {
        "versions": Versions("0.1.0", "0.12.0", "3.11.7"),
        "target": "c",
        "patches": {},
        "program": ("-m", "pytest"),
        **changes,
    }
    run = SavedRun(schema=RUN_SCHEMA, kind="saved-run", folder="run-1", status=status, **fields)
    files = start_run(folder, run)
    for test, schedules in tests.items():
        captures = [make_capture(schedules=(item,)) for item in schedules]
        names = [save_schedule(files, capture) for capture in captures]
        for name, item in zip(names, schedules, strict=True):
            append_line(files / "tests" / f"{name_test(test)}-1-a.jsonl", AskedSchedule(test, name, item.line))
    return load_run(folder)


def make_program(name: str, nodes: tuple[int, ...], **changes: Any) -> Kernel:
    """A kernel that computes some nodes, the last of which it writes; its source is like no other's."""
    source = f"void {name}() {{ {changes.pop('body', name)}; }}\n"
    return make_kernel(name, source, nodes=nodes, outputs=nodes[-1:], lines=("test_a.py:3",), key=name, **changes)


def realize(node: Node, reason: Any) -> Node:
    return make_node(node.id, node.op, src=node.src, realized=Realized((), reason, reason))


def two_kernels() -> Schedule:
    """A reduce, and an elementwise kernel that reads it."""
    nodes = (NODES[0], realize(NODES[1], "ending-ranges"), NODES[2])
    kernels = (make_program("r_4", (1,)), make_program("E_4", (2,)))
    return make_schedule(nodes=nodes, kernels=kernels, line="test_a.py:3")


def one_kernel(**changes: Any) -> Schedule:
    """The same in one kernel."""
    return make_schedule(nodes=NODES, kernels=(make_program("r_4_4", (1, 2), **changes),), line="test_a.py:3")
