"""Prints, as JSON, what the neutral view says of the kernels of programs, and what running it by hand stores."""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

from observed import compile_kernels

OPS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "cdiv": lambda a, b: int(a / b),
    "cmod": lambda a, b: int(math.fmod(a, b)),
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "max": max,
    "lt": lambda a, b: a < b,
    "ne": lambda a, b: a != b,
    "eq": lambda a, b: a == b,
    "where": lambda c, a, b: a if c else b,
    "cast": int,
}


def evaluate(value: Any, steps: dict[Any, int]) -> int:
    if value in steps:
        return steps[value]
    if value.constant is not None:
        return value.constant
    return OPS[value.op](*(evaluate(s, steps) for s in value.sources))


def reached(access: Any) -> list[int]:
    """Every element that an access touches, gone through step by step."""
    found = []
    for step in itertools.product(*(range(loop.trips) for loop in access.loops)):
        steps = dict(zip(access.loops, step, strict=True))
        if access.gate is None or evaluate(access.gate, steps):
            first = evaluate(access.index, steps)
            found += range(first, first + access.width)
    return found


def is_decided(access: Any) -> bool:
    """Not where the data says what is read: an index that is loaded itself."""
    parts = [part for root in (access.index, access.gate) if root is not None for part in walk(root)]
    return not any(source.op == "load" for part in parts for source in (part, *part.sources))


def describe(compiled: Any) -> dict[str, Any]:
    from vmapdbg.child.program.linear_reader import read_linear

    program = read_linear(compiled.uops)
    stores = [a for a in program.accesses if a.is_store and a.buffer.space == "global"]
    written = {a.buffer.slot: set[int]() for a in stores}
    for access in stores:
        written[access.buffer.slot] |= set(reached(access))
    loads = [a for a in program.accesses if not a.is_store and a.buffer.space == "global"]
    addresses = {id(v) for a in program.accesses for root in (a.index, a.gate) if root is not None for v in walk(root)}
    return {
        "sizes": {b.slot: b.size for b in program.buffers if b.space == "global"},
        "written": {slot: [len(found), min(found), max(found)] for slot, found in written.items()},
        "read": sorted({a.buffer.slot for a in loads}),
        "outside": [
            a.buffer.name for a in loads if is_decided(a) and any(not 0 <= i < a.buffer.size for i in reached(a))
        ],
        "open": [loop.name for loop in program.open_loops],
        "outs": list(compiled.outs),
        "ins": list(compiled.ins),
        "accesses": len(stores) + len(loads),
        "trips": math.prod(loop.trips for loop in (*program.loops, *program.threads)),
        "computed": sum(v.lanes for v, _ in program.computed if is_counted(v) and id(v) not in addresses),
    }


def is_counted(value: Any) -> bool:
    return value.operations > 0 and value.op != "wmma"


def walk(value: Any) -> list[Any]:
    if value.op == "load":
        return []
    return [value, *(part for source in value.sources for part in walk(source))]


if __name__ == "__main__":
    kernels = compile_kernels(sys.argv[1], sys.argv[2:])
    print(json.dumps([{"of": name, "said": describe(compiled)} for name, _, compiled in kernels]))
