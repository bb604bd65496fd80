"""`python -m tests.fuzz.hunt.twins --programs N --seed S --on 0.12.0,patches`: random programs with a numpy twin of
each statement, in program order. `check` must find no wrong value if tinygrad's results equal the twin's, and else a
wrong value, or something that it did not compare.

Exit code 1: it accused a right program, or said "all right" of a wrong one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.fuzz.draw import Draw, SeededDraw
from tests.fuzz.hunt.__main__ import TARGETS
from tests.fuzz.hunt.runner import Runner

BEGINS = """import numpy as np
from tinygrad import Tensor, TinyJit, Variable, dtypes
differs = 0
devices = ("CPU", "CPU:1")
def read(tensor, right):
  global differs
  differs += not np.allclose(tensor.numpy(), right, rtol=1e-3, atol=1e-3)
"""
# Tensor expression, and numpy's if it is spelled in another way
VALUES = (
    ("{a} * 0.5 + 1", ""),
    ("{a} - {b}", ""),
    ("{a} + {b} * 2", ""),
    ("{a} * 1 + {a}.sum() * 0.1", ""),
    ("{a} - {a}.max()", ""),
    ("{a}.cast(dtypes.int).cast(dtypes.float) + {b}", "{a}.astype(np.int32).astype(np.float32) + {b}"),
    ("{a}.flip(0) * 2", "{a}[::-1] * 2"),
    ("{a}[1:].sum() + {b}", ""),
    ("({a} * {a} * {b}.detach()).sum().gradient({a})[0] * 0.25", "{a} * {b} * 0.5"),
    ("({a} > {b}).where({a}, 0.5)", "np.where({a} > {b}, {a}, 0.5)"),
    ("{a}[:Variable('i', 1, 4).bind({i})].sum() + {b}", "{a}[:{i}].sum() + {b}"),
)
SHARDINGS = ("", "", "", ".shard(devices)", ".shard(devices, 0)")
# tinygrad refuses a slice along the axis of the shards
OF_SHARDS = tuple(one for one in VALUES if "{a}[" not in one[0] and "flip" not in one[0])
JITTED = """@TinyJit
def step{n}(x): return (x * {i} + 1).realize()
for k in range({i} + 1):
  given = np.arange(4, dtype=np.float32) + k
  read(step{n}(Tensor(given).realize()), given * {i} + 1)
"""


def write_program(draw: Draw) -> str:
    """Returns a program: its Tensors are `t0`, `t1`, ..., their twins `n0`, `n1`, ...."""
    lines, memory, values = [BEGINS], list[int](), list[int]()
    shard = draw.choice(SHARDINGS)
    expressions = OF_SHARDS if shard else VALUES
    for number in range(draw.integer(1, 3)):
        numbers = [draw.integer(-4, 4) for _ in range(4)]
        lines.append(f"n{number} = np.array({numbers}, np.float32)")
        lines.append(f"t{number} = Tensor(n{number}.copy()){shard}.realize()")
        memory.append(number)
    for _ in range(draw.integer(4, 12)):
        known = [*memory, *values]
        kind = draw.choice(("value", "value", "assign", "assign", "realize", "read", "read", "jit"))
        a, b, i = draw.choice(known), draw.choice(known), draw.integer(1, 4)
        # `x - x` overwrites x on 0.12.0: less_itself_overwrites in tests/found
        ours, twin = draw.choice(expressions if a != b else expressions[:1])
        got = ours.format(a=f"t{a}", b=f"t{b}", i=i)
        right = f"({(twin or ours).format(a=f'n{a}', b=f'n{b}', i=i)}).astype(np.float32)"
        if kind == "value":
            values.append(len(known))
            lines.append(f"t{len(known)} = {got}; n{len(known)} = {right}")
        elif kind == "assign":
            to = draw.choice(memory)
            lines.append(f"t{to}.assign({got}); n{to} = {right}")
        elif kind == "jit":
            lines.append(JITTED.format(n=len(lines), i=i))
        else:
            lines.append(f"t{a}.realize()" if kind == "realize" else f"read(t{a}, n{a})")
    # twice: a schedule may damage memory that was read before it
    lines += [f"read(t{number}, n{number})" for number in (*values, *memory) * 2]
    # nothing is left to be realized by the worker
    lines.append(f"del {', '.join(f't{number}' for number in (*values, *memory))}\nprint(differs)")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.hunt.twins", description=__doc__)
    parser.add_argument("--programs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", type=lambda text: text.split(","), default=list(TARGETS))
    args = parser.parse_args(arguments)
    mistaken = 0
    for name in args.on:
        runner, counts = Runner(name), Counter[str]()
        for number in range(args.programs):
            source = write_program(SeededDraw((args.seed, number)))
            found = runner.run(source)
            is_right = found.printed.strip() == "0"
            kind = "left over" if found.kind == "ok" and found.detail else found.kind
            counts[f"{'right' if is_right else 'not right'}: {kind}"] += 1
            if kind == ("wrong" if is_right else "ok"):
                mistaken += 1
                print(f"seed {args.seed} number {number} on {name}: {found.detail}\n{source}")
        runner.stop()
        print(f"{name}: {', '.join(f'{count} {kind}' for kind, count in counts.most_common())}", flush=True)
    return int(mistaken > 0)


if __name__ == "__main__":
    sys.exit(main())
