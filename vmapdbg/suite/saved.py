"""What is kept of a run: small records made from the schedules of the model, and schedules made from them again.

`run.json` has the run, `tests/*.json` what each test scheduled, `schedules/*.json` and `kernels/*.json` what several
tests share, once. The last two are named after what they hold.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vmapdbg.model.capture import BufferArg, Kernel, Node, Realized, Schedule, Versions
from vmapdbg.model.data import to_data

RUN_SCHEMA: Literal[1] = 1
"""Version of the files of a saved run."""

# tinygrad numbers kernels of one name in the order of a process
_NUMBER = re.compile(r"n\d+$")


@dataclass(frozen=True)
class SavedRun:
    """A run: `folder` is where its files are, beside `run.json`. `program` is what was run, `status` its exit code
    (128 + the signal that killed it), None while it runs and where it was stopped together with the tool."""

    schema: Literal[1]
    kind: Literal["saved-run"]
    folder: str
    versions: Versions
    target: str
    patches: dict[str, bool]
    program: tuple[str, ...]
    status: int | None = None


@dataclass(frozen=True)
class SavedTest:
    """A part of what one test scheduled in one process, in order: a file has at most `MOST_ASKED` entries.

    `began` orders the parts of a test: nanoseconds since 1970. `failed` says of each schedule that could not be
    rendered why.
    """

    test: str
    began: int
    schedules: tuple[AskedSchedule, ...]
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class AskedSchedule:
    """A schedule that was asked for at a line, `count` times in a row."""

    schedule: str
    line: str | None
    count: int = 1


@dataclass(frozen=True)
class SavedNode:
    """A node without its ranges. `realized` is why it is written to a buffer, `rule` what decided first."""

    op: str
    dtype: str
    shape: tuple[int | str, ...] | None
    src: tuple[int, ...]
    arg: str = ""
    line: str | None = None
    realized: str | None = None
    rule: str | None = None


@dataclass(frozen=True)
class SavedLaunch:
    """A kernel in a schedule: the name of its file, and what it has to do with the nodes, by their place."""

    kernel: str
    nodes: tuple[int, ...]
    outputs: tuple[int, ...]
    lines: tuple[str, ...]
    launches: int


@dataclass(frozen=True)
class SavedSchedule:
    """A schedule: its graph and its kernels."""

    copies: int
    nodes: tuple[SavedNode, ...]
    kernels: tuple[SavedLaunch, ...]


@dataclass(frozen=True)
class SavedKernel:
    """A kernel as rendered. `ops` and `bytes` are those of one launch."""

    name: str
    key: str
    source: str
    global_size: tuple[int | str, ...]
    local_size: tuple[int | str, ...] | None
    local_bytes: int
    threads: int
    ops: int
    bytes: int
    redundancy: float | None
    buffers: tuple[BufferArg, ...]


# *** from the model


def shrink_schedule(schedule: Schedule) -> tuple[SavedSchedule, dict[str, SavedKernel]]:
    """Returns what is kept of a schedule, and its kernels by the names of their files."""
    places = {node.id: place for place, node in enumerate(schedule.nodes)}
    kernels: dict[str, SavedKernel] = {}
    launches: list[SavedLaunch] = []
    for kernel in schedule.kernels:
        saved = shrink_kernel(kernel)
        name = name_kernel(saved)
        kernels[name] = saved
        nodes = tuple(places[node] for node in kernel.nodes)
        outputs = tuple(places[node] for node in kernel.outputs)
        launches.append(SavedLaunch(name, nodes, outputs, kernel.lines, kernel.launches))
    saved_nodes = tuple(shrink_node(node, places) for node in schedule.nodes)
    return SavedSchedule(schedule.copies, saved_nodes, tuple(launches)), kernels


def shrink_node(node: Node, places: Mapping[int, int]) -> SavedNode:
    """Returns what is kept of a node; `places` has the place of each node by its id."""
    src = tuple(places[source] for source in node.src)
    realized, rule = None, None
    if node.realized is not None:
        realized = node.realized.reason
        rule = next((reason.rule for reason in node.realized.reasons), None)
    return SavedNode(node.op, node.dtype, node.shape, src, node.arg, node.line, realized, rule)


def shrink_kernel(kernel: Kernel) -> SavedKernel:
    """Returns what is kept of a kernel: nothing that depends on what else the process did."""
    name = _NUMBER.sub("", kernel.name)
    source = re.sub(rf"\b{re.escape(kernel.name)}\b", name, kernel.source)
    return SavedKernel(
        name=name,
        key=kernel.key,
        source=source,
        global_size=kernel.global_size,
        local_size=kernel.local_size,
        local_bytes=kernel.local_bytes,
        threads=kernel.threads,
        ops=kernel.executed_ops // kernel.launches,
        bytes=kernel.bytes // kernel.launches,
        redundancy=kernel.redundancy,
        buffers=kernel.buffers,
    )


def name_kernel(kernel: SavedKernel) -> str:
    """Returns the name of a kernel's file: its key, and a digest, as one AST is rendered otherwise under NOOPT."""
    return f"{kernel.key[:24]}-{digest(kernel)[:12]}"


def digest(record: Any) -> str:
    """Returns the hex digest of what a record holds."""
    return hashlib.sha256(dump_record(record).encode()).hexdigest()


def dump_record(record: Any) -> str:
    """Returns a record as JSON on one line."""
    return json.dumps(to_data(record), separators=(",", ":"), allow_nan=False)


# *** to the model


def grow_schedule(
    saved: SavedSchedule, kernels: Mapping[str, SavedKernel], target: str, index: int, line: str | None
) -> Schedule:
    """Returns a schedule of the model from what was kept of it; it has no ranges and no BUFFERIZE."""
    nodes = tuple(_grow_node(place, node) for place, node in enumerate(saved.nodes))
    grown = tuple(_grow_kernel(launch, kernels[launch.kernel], target) for launch in saved.kernels)
    return Schedule(index, line, saved.copies, nodes, (), (), (), grown, ())


def _grow_node(place: int, node: SavedNode) -> Node:
    realized = None
    if node.realized is not None:
        # what the rule was applied to is not kept, so its name stands for the sentence
        reason: Any = node.realized
        realized = Realized((), reason, node.rule or node.realized)
    return Node(place, node.op, node.dtype, node.shape, node.src, None, None, (), realized, node.line, node.arg)


def _grow_kernel(launch: SavedLaunch, kernel: SavedKernel, target: str) -> Kernel:
    return Kernel(
        name=kernel.name,
        target=target,
        source=kernel.source,
        global_size=kernel.global_size,
        local_size=kernel.local_size,
        local_bytes=kernel.local_bytes,
        threads=kernel.threads,
        executed_ops=kernel.ops * launch.launches,
        bytes=kernel.bytes * launch.launches,
        redundancy=kernel.redundancy,
        buffers=kernel.buffers,
        nodes=launch.nodes,
        lines=launch.lines,
        outputs=launch.outputs,
        launches=launch.launches,
        key=kernel.key,
    )
