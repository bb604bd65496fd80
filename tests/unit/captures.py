"""Captures built by hand, so that tests of the tool's outputs need no tinygrad.

`lost_range` is the program of samples/lost_range.py with and without the ambient-ranges patch; the others are made up.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from vmapdbg.model.account import Account
from vmapdbg.model.capture import (
    SCHEMA,
    BufferArg,
    Bufferize,
    Capture,
    Finding,
    Function,
    Kernel,
    Measured,
    Node,
    Range,
    Realized,
    Reason,
    Schedule,
    SnippetError,
    Versions,
    VmapEntry,
)
from vmapdbg.model.store import dump_compact

SNIPPET = "samples/lost_range.py"
ALL_ON = {
    "vmap-ops": True,
    "ambient-ranges": True,
    "nested-ranges": True,
    "close-ranges": True,
    "fuse-broadcast": True,
    "local-budget": True,
    "fusion-guard": True,
}

_LOST_HEAD = """
void r_3_2_2_2(double* restrict data0_{size}, double* restrict data1_12, int core_id) {{
  for (int Lidx2 = 0; Lidx2 < 3; Lidx2++) {{
    double val0 = (*(data1_12+(Lidx2+3)));
    double val1 = (*(data1_12+(Lidx2+6)));
    double val2 = (*(data1_12+(Lidx2+9)));
    double val3 = (*(data1_12+Lidx2));
"""
LOST_SOURCE = (
    _LOST_HEAD.format(size=2)
    + """    *(data0_2+0) = (val3+val0);
    *(data0_2+1) = (val1+val2);
  }
}
"""
)
CLOSED_SOURCE = (
    _LOST_HEAD.format(size=6)
    + """    int alu0 = (Lidx2<<1);
    *(data0_6+(alu0+1)) = (val1+val2);
    *(data0_6+alu0) = (val3+val0);
  }
}
"""
)
GATHER_SOURCE = """
void r_3_2_2({dtype}* restrict data0_6, double* restrict data1_{size}, int* restrict data2_2, int core_id) {{
  double acc0[1];
  for (int Lidx1 = 0; Lidx1 < 3; Lidx1++) {{
    for (int Lidx3 = 0; Lidx3 < 2; Lidx3++) {{
      int val0 = (*(data2_2+Lidx3));
      *(acc0+0) = 0.0;
      for (int Ridx0 = 0; Ridx0 < 2; Ridx0++) {{
        double val1 = (((val0!=Ridx0)!=1)?(*(data1_{size}+({offset}Ridx0))):0.0);
        *(acc0+0) = ((*(acc0+0))+val1);
      }}
      *(data0_6+((Lidx1<<1)+Lidx3)) = (*(acc0+0));
    }}
  }}
}}
"""


def make_node(id: int, op: str, shape: tuple[int | str, ...] | None = (2,), **changes: Any) -> Node:
    """A node with the ranges `changes` gives it; `ranges` sets in and out at once."""
    ranges = changes.pop("ranges", None)
    node = Node(id, op, "double", shape, (), ranges, ranges, (), None, None, "")
    return replace(node, **changes)


def make_kernel(name: str, source: str = "void f() {}\n", **changes: Any) -> Kernel:
    """A C kernel of one thread that executes 100 ops and moves 64 bytes."""
    kernel = Kernel(
        name=name,
        target="c",
        source=source,
        global_size=(1, 1, 1),
        local_size=None,
        local_bytes=0,
        threads=1,
        executed_ops=100,
        bytes=64,
        redundancy=1.0,
        buffers=(BufferArg("data0_6", 6, "double", "write"),),
        nodes=(),
        lines=(),
        outputs=(),
        launches=1,
        key="",
    )
    return replace(kernel, **changes)


def make_schedule(index: int = 0, **changes: Any) -> Schedule:
    """An empty schedule."""
    return replace(Schedule(index, None, 0, (), (), (), (), (), ()), **changes)


def make_capture(*schedules: Schedule, **changes: Any) -> Capture:
    """A capture for target c with all patches on."""
    versions = Versions("0.1.0", "0.12.0", "3.11.7")
    # all that ran is shown, and has values
    count = {"launches": sum(len(schedule.kernels) + schedule.copies for schedule in schedules)}
    account = Account({"outputs": 0, **count}, count)
    return replace(
        Capture(SCHEMA, versions, SNIPPET, "c", dict(ALL_ON), None, schedules, (), account=account), **changes
    )


def lost_range(*, fixed: bool = True) -> Capture:
    """A stack of two sums, indexed with [[0, 1]], under vmap over three columns."""
    size = 6 if fixed else 2
    schedule = make_schedule(
        line=f"{SNIPPET}:19",
        copies=1,
        nodes=_lost_nodes(),
        ranges=(
            Range("rm1", 3, "LOOP", True),
            Range("r0", 2, "LOOP", False),
            Range("r1", 2, "REDUCE", False),
            Range("r2", 2, "LOOP", False),
            Range("r3", 2, "REDUCE", False),
            Range("r4", 2, "REDUCE", False),
        ),
        vmap_map=tuple(VmapEntry(node.id, node.ambient) for node in _lost_nodes() if node.ambient),
        bufferizes=(
            Bufferize(24, ("rm1", "r0"), (), 6, 48, "GLOBAL", "kept", "output of the schedule"),
            _lost_bufferize(fixed, size),
        ),
        kernels=(_stack_kernel(size), _gather_kernel(size)),
    )
    return make_capture(schedule, patches={**ALL_ON, "ambient-ranges": fixed})


def _lost_bufferize(fixed: bool, size: int) -> Bufferize:
    closed, ambient = (("rm1", "r2"), ("rm1",)) if fixed else (("r2",), ())
    why = "a reduce reads it: removing it would sum again for every r0"
    return Bufferize(18, closed, ambient, size, size * 8, "GLOBAL", "kept", why)


def _stack_kernel(size: int) -> Kernel:
    return make_kernel(
        "r_3_2_2_2",
        CLOSED_SOURCE if size == 6 else LOST_SOURCE,
        executed_ops=69,
        bytes=144,
        buffers=(BufferArg(f"data0_{size}", size, "double", "write"), BufferArg("data1_12", 12, "double", "read")),
        nodes=(4, 5, 6, 7, 8, 10, 11, 18),
        lines=(f"{SNIPPET}:14", f"{SNIPPET}:15"),
        outputs=(18,),
        key="3f6a" * 16,
    )


def _gather_kernel(size: int) -> Kernel:
    source = GATHER_SOURCE.format(dtype="double", size=size, offset="(Lidx1<<1)+" if size == 6 else "")
    return make_kernel(
        "r_3_2_2",
        source,
        executed_ops=132,
        bytes=104,
        redundancy=2.2,
        buffers=(
            BufferArg("data0_6", 6, "double", "write"),
            BufferArg(f"data1_{size}", size, "double", "read"),
            BufferArg("data2_2", 2, "int", "read"),
        ),
        nodes=(20, 21, 22, 23, 24),
        lines=(f"{SNIPPET}:16", f"{SNIPPET}:17"),
        outputs=(24,),
        key="9c01" * 16,
    )


def _lost_nodes() -> tuple[Node, ...]:
    rm1 = ("rm1",)
    out = Realized((0, 1), "output", "the schedule returns it")
    add = Realized(
        (0,), "ending-ranges", "r1 of REDUCE_AXIS 23 ends below it and EXPAND 20 reads it again for every r0"
    )
    s14, s15, s16, s17 = (f"{SNIPPET}:{line}" for line in (14, 15, 16, 17))
    return (
        make_node(0, "LUNIQUE", None),
        make_node(1, "DEVICE", None),
        make_node(2, "BUFFER", (12,), src=(0, 1), ranges=("(rm1+r3*3)",)),
        make_node(3, "RESHAPE", (4, 3), src=(2,), in_ranges=("(rm1+r3*3)",), out_ranges=("r3", "rm1"), line=s14),
        make_node(4, "VMAPIN", (4,), src=(3,), in_ranges=("r3", "rm1"), out_ranges=("r3",), ambient=rm1, line=s14),
        make_node(5, "SHRINK", (2,), src=(4,), ranges=("r3",), ambient=rm1, line=s15),
        make_node(6, "REDUCE_AXIS", (1,), src=(5,), in_ranges=("r3",), out_ranges=("0",), ambient=rm1, line=s15),
        make_node(7, "PAD", (2,), src=(6,), in_ranges=("0",), out_ranges=("r2",), ambient=rm1, line=s15),
        make_node(8, "SHRINK", (2,), src=(4,), in_ranges=("(r4+2)",), out_ranges=("r4",), ambient=rm1, line=s15),
        make_node(10, "REDUCE_AXIS", (1,), src=(8,), in_ranges=("r4",), out_ranges=("0",), ambient=rm1, line=s15),
        make_node(11, "PAD", (2,), src=(10,), in_ranges=("0",), out_ranges=("r2",), ambient=rm1, line=s15),
        make_node(18, "ADD", (2,), src=(7, 11), ranges=("r2",), ambient=rm1, realized=add, line=s15),
        make_node(19, "CONST", (), ranges=()),
        make_node(20, "EXPAND", (2, 2), src=(18,), in_ranges=("r1",), out_ranges=("r0", "r1"), ambient=rm1, line=s16),
        make_node(21, "BUFFER", (2,), src=(0, 1), ranges=("r0",), dtype="int", line=s16),
        make_node(22, "WHERE", (2, 2), src=(21, 20, 19), ranges=("r0", "r1"), ambient=rm1, line=s16),
        make_node(
            23, "REDUCE_AXIS", (2, 1), src=(22,), in_ranges=("r0", "r1"), out_ranges=("r0", "0"), ambient=rm1, line=s16
        ),
        make_node(
            24, "VMAPOUT", (3, 2), src=(23,), in_ranges=("r0",), out_ranges=("rm1", "r0"), realized=out, line=s17
        ),
        make_node(25, "SINK", (3, 2), src=(24,)),
    )


def long_graph(count: int = 300) -> Capture:
    """A chain of `count` nodes: every 50th is a reduce, one of these is realized, the rest is elementwise."""
    nodes = [make_node(0, "BUFFER", (4096,), ranges=("r0",))]
    for number in range(1, count):
        reduce = number % 50 == 0
        realized = Realized((0,), "consumers-disagree", f"ADD {number + 1} and ADD {number + 2} want other ranges")
        nodes.append(
            make_node(
                number,
                "REDUCE_AXIS" if reduce else "ADD",
                (64, 1) if reduce else (64, 64),
                src=(number - 1,),
                in_ranges=("r0", "r1"),
                out_ranges=("r0", "0") if reduce else ("r0", "r1"),
                realized=realized if number == 100 else None,
                line=f"model/blocks.py:{number}",
            )
        )
    ranges = (Range("r0", 64, "LOOP", False), Range("r1", 64, "REDUCE", False))
    schedule = make_schedule(nodes=tuple(nodes), ranges=ranges, kernels=(make_kernel("r_64_64"),))
    return make_capture(schedule, snippet="model/train.py")


def many_kernels(count: int = 24) -> Capture:
    """One schedule of `count` kernels, every fourth of them the same program."""
    kernels: list[Kernel] = []
    for number in range(count):
        same = number % 4 == 3
        name = "E_32_256_4" if same else f"r_{number + 2}_32_16_4_{number}"
        source = f"void {name}(float* restrict data0_32768) {{\n  *(data0_32768+0) = 1.0f;\n}}\n"
        kernels.append(
            make_kernel(
                name,
                source,
                global_size=(32, 16, 1),
                local_size=(16, 1, 1),
                local_bytes=40_960 if number == 5 else 0,
                threads=8192,
                executed_ops=65_536 if same else 1_000_000 * (number + 1) ** 2,
                bytes=131_200 * (number + 1),
                redundancy=37.25 if number == 6 else None if same else 1.0,
                buffers=tuple(
                    BufferArg(f"data{i}_{32768 >> i}", 32768 >> i, "float", "read" if i else "write") for i in range(4)
                ),
                nodes=tuple(range(number * 7, number * 7 + 7)),
                lines=tuple(f"/home/me/llm/model/attention.py:{40 + line}" for line in range(number % 3 + 1)),
                outputs=(number * 7 + 6,),
                launches=12 if number == 7 else 1,
                key="e32" if same else f"key{number}",
            )
        )
    nodes = tuple(make_node(number, "ADD") for number in range(count * 7))
    schedule = make_schedule(line="/home/me/llm/train.py:88", copies=3, kernels=tuple(kernels), nodes=nodes)
    findings = (
        Finding("VD102", "r_7_32_16_4_5", None, None, "40,960 bytes of LOCAL memory, Metal has 32,768", 0, 5),
        Finding("VD104", "r_8_32_16_4_6", None, None, "executes 37.2 times the ops that the graph asks for", 0, 6),
    )
    return make_capture(schedule, snippet="train.py", target="metal", findings=findings)


def make_network() -> Capture:
    """A function that is called by `main` and has a forward and a backward kernel; `main` has one of its own."""
    functions = Function("<module>", "n.py", None), Function("main", "n.py", 0), Function("Block.__call__", "n.py", 1)
    nodes = [
        make_node(1, "ADD", line="n.py:3", function=2, phase="forward"),
        make_node(2, "ADD", line="n.py:3", function=2, phase="backward"),
        make_node(3, "ADD", line="n.py:9", function=1, phase="forward"),
    ]
    kernels: list[Kernel] = []
    for node, seconds in zip(nodes, (0.2, 0.6, 0.2), strict=True):
        name = f"r_{node.id}"
        measured = Measured(1, seconds, seconds, seconds)
        known = {"nodes": (node.id,), "main": node.id, "phase": node.phase, "measured": measured, "title": "add 2"}
        kernels.append(
            make_kernel(name, f"void {name}();", executed_ops=100, bytes=8, lines=(str(node.line),), **known)
        )
    schedule = make_schedule(nodes=tuple(nodes), kernels=tuple(kernels))
    return make_capture(schedule, functions=functions)


def training_step(parameters: int = 30) -> Capture:
    """A forward part of layers that differ, then for each parameter a gradient and its update, each with its kernel."""
    why = Realized((0,), "ending-ranges", "")
    nodes: list[Node] = [make_node(0, "BUFFER")]
    kernels: list[Kernel] = []
    kept: list[Bufferize] = []

    def add(op: str, src: tuple[int, ...], line: str) -> int:
        number = len(nodes)
        nodes.append(make_node(number, op, (number + 1,), src=src, line=line, realized=why))
        kept.append(Bufferize(number, ("r0",), (), 8, 32, "GLOBAL", "kept", "because"))
        kernels.append(
            make_kernel(
                f"E_{number}", key=str(number), nodes=(number,), outputs=(number,), lines=(line,), executed_ops=9
            )
        )
        return number

    last = 0
    for number, op in enumerate(["MUL", "ADD", "EXP2", "SIN", "SQRT", "REDUCE_AXIS"] * 2):
        last = add(op, (last,), f"net.py:{number + 3}")
    for _ in range(parameters):
        gradient = add("RECIPROCAL", (last,), "net.py:30")
        add("SUB", (gradient,), "net.py:31")
    return make_capture(make_schedule(nodes=tuple(nodes), kernels=tuple(kernels), bufferizes=tuple(kept)))


OLD = "import tinygrad\n\nx = (a * b).sum()\ny = x + 1\n"
NEW = "import tinygrad\n# kept\n\nx = (a * b).sum().contiguous()\ny = x + 1\n"


def sum_and_add(file: str, sum_line: int, number: str, ops: int) -> Capture:
    """Two kernels of two lines, as of the files OLD and NEW; the number and the ops are of the first kernel."""
    source = f"void r_64(float* data0) {{\n  int same = 1;\n  data0[0] = {number}+data0[1];\n}}\n"
    first, second = f"{file}:{sum_line}", f"{file}:{sum_line + 1}"
    why = Realized((0,), "ending-ranges", "", (Reason("ending-ranges"),))
    nodes = (
        make_node(2, "MUL", line=first),
        make_node(3, "REDUCE", src=(2,), line=first, realized=why),
        make_node(5, "ADD", src=(3,), line=second),
    )
    kernels = (
        make_kernel("r_64", source, key=number, nodes=(2, 3), outputs=(3,), lines=(first,), executed_ops=ops, bytes=64),
        make_kernel("E_64", key="bb", nodes=(5,), outputs=(5,), lines=(second,), executed_ops=100, bytes=300),
    )
    return make_capture(make_schedule(nodes=nodes, kernels=kernels), snippet=file)


def failed_snippet(*schedules: Schedule) -> Capture:
    """A snippet that raised, by default before its first schedule; the message looks like markup."""
    message = "shape mismatch: cannot broadcast [red](3, 4)[/red] to [r4]\nsecond line of the message"
    return make_capture(*schedules, error=SnippetError("ValueError", message, f"{SNIPPET}:12"))


def many_schedules(count: int = 7) -> Capture:
    """Schedules of which 0 and 3 are of interest; the odd ones only copy, the other even ones repeat 0."""
    schedules: list[Schedule] = []
    for number in range(count):
        kernels = () if number % 2 else (make_kernel("E_4", key="same"),)
        if number == 3:
            kernels = (make_kernel("r_9", key="other"),)
        schedules.append(make_schedule(number, copies=number % 2, kernels=kernels))
    return make_capture(*schedules)


def to_data(document: Any) -> Any:
    """Returns a document as plain JSON data."""
    return json.loads(dump_compact(document))
