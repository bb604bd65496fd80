"""What `tinygrad.func.vmap` costs: `python -m bench.vmap [--pairs N] [--batch B ...] [--calls]`.

For each function: one vmapped call against the program somebody would write for the whole batch by hand.

 - kernels: vmapped / by hand (the same number)
 - run: time of the kernels (under TinyJit), vmapped / by hand, the median of pairs that take turns (at most 1.05)
 - call: time of a call that builds its graph again each time and finds its schedule in the cache: vmapped / by hand,
   the median of pairs of single calls that take turns (at most 1.10). `--calls` shows this alone, with the medians of
   what it takes to build the graph and to schedule and run it, in milliseconds, and ends with 1 where it is over that
 - loop, jax, torch: time of a Python loop over the elements (each row's kernels under TinyJit), of jax.jit(jax.vmap)
   and of torch.func.vmap, over the vmapped time: above 1 they are slower. `-` where it is not installed.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# isort: off
import vmapdbg.patched  # noqa: F401  (before the first import of tinygrad)

# isort: on
import numpy as np
from rich.console import Console
from rich.table import Table
from tinygrad import Device, Tensor, TinyJit
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import jvp, vmap
from tinygrad.uop.ops import Ops

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One function, for one element and for the whole batch. `shape` is that of an element; `library` is what it is in
    jax and torch, given the module (jax.numpy or torch) and the weights."""

    name: str
    shape: tuple[int, ...]
    one: Callable[[Tensor], Tensor]
    batched: Callable[[Tensor], Tensor]
    library: Callable[[Any, dict[str, Any]], Callable[[Any], Any]] | None = None
    after: Callable[[Tensor], Tensor] = lambda y: y
    out_axes: int = 0


NUMBERS = np.random.default_rng(0)
WEIGHTS = {
    "square": NUMBERS.standard_normal((64, 64)).astype(np.float32) / 8,
    "up": NUMBERS.standard_normal((64, 128)).astype(np.float32) / 8,
    "down": NUMBERS.standard_normal((128, 64)).astype(np.float32) / 11,
}
W = {name: Tensor(array).realize() for name, array in WEIGHTS.items()}


def attend(x: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2) * 0.25).softmax() @ x


def slope(x: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    return jvp(lambda v: total(v).sqrt(), (x,), (x.sin(),))[1]


CASES = [
    Case(
        "sin(x)*2+1",
        (64,),
        lambda x: x.sin() * 2 + 1,
        lambda x: x.sin() * 2 + 1,
        lambda m, w: lambda x: m.sin(x) * 2 + 1,
    ),
    Case("sum", (64,), lambda x: x.sum(), lambda x: x.sum(1), lambda m, w: lambda x: x.sum()),
    Case(
        "norm",
        (64,),
        lambda x: (x * x).sum().sqrt(),
        lambda x: (x * x).sum(1).sqrt(),
        lambda m, w: lambda x: m.sqrt((x * x).sum()),
    ),
    Case(
        "sum, then flipped",
        (64,),
        lambda x: x.sum(),
        lambda x: x.sum(1),
        lambda m, w: lambda x: x.sum(),
        after=lambda y: y.flip(0) + 1,
    ),
    Case(
        "softmax",
        (64,),
        lambda x: x.softmax(),
        lambda x: x.softmax(),
        lambda m, w: lambda x: m.exp(x - x.max()) / m.exp(x - x.max()).sum(),
    ),
    Case(
        "layernorm",
        (64,),
        lambda x: x.layernorm(),
        lambda x: x.layernorm(),
        lambda m, w: lambda x: (x - x.mean()) / m.sqrt(((x - x.mean()) ** 2).mean() + 1e-5),
    ),
    Case("matvec", (64,), lambda x: x @ W["square"], lambda x: x @ W["square"], lambda m, w: lambda x: x @ w["square"]),
    Case(
        "x @ M @ x",
        (64,),
        lambda x: (x @ W["square"]) @ x,
        lambda x: ((x @ W["square"]) * x).sum(1),
        lambda m, w: lambda x: (x @ w["square"]) @ x,
    ),
    Case(
        "two-layer MLP",
        (64,),
        lambda x: (x @ W["up"]).relu() @ W["down"],
        lambda x: (x @ W["up"]).relu() @ W["down"],
        lambda m, w: lambda x: (x @ w["up"]).clip(0) @ w["down"],
    ),
    Case(
        "matmul", (8, 64), lambda x: x @ W["square"], lambda x: x @ W["square"], lambda m, w: lambda x: x @ w["square"]
    ),
    Case(
        "attention",
        (8, 16),
        attend,
        attend,
        lambda m, w: lambda x: (lambda e: e / e.sum(-1)[:, None])(m.exp(x @ x.T * 0.25)) @ x,
    ),
    Case(
        "index",
        (64,),
        lambda x: x[[3, 1, 2]] * 2,
        lambda x: x[:, [3, 1, 2]] * 2,
        lambda m, w: lambda x: x[m.asarray([3, 1, 2])] * 2,
    ),
    Case("cumsum", (64,), lambda x: x.cumsum(), lambda x: x.cumsum(1), lambda m, w: lambda x: m.cumsum(x, 0)),
    Case(
        "elementwise chain",
        (64,),
        lambda x: (x * 2 + 1).sin().exp().relu() - 0.5,
        lambda x: (x * 2 + 1).sin().exp().relu() - 0.5,
    ),
    Case("matmul, softmax", (64,), lambda x: (x @ W["square"]).softmax(), lambda x: (x @ W["square"]).softmax()),
    Case("nested vmap", (8, 64), vmap(lambda x: x.softmax() * 2), lambda x: x.softmax() * 2),
    Case("jvp", (64,), lambda x: slope(x, lambda v: (v * v).sum()), lambda x: slope(x, lambda v: (v * v).sum(1))),
    Case(
        "out_axes=1", (64,), lambda x: x * 2, lambda x: (x * 2).T.contiguous(), lambda m, w: lambda x: x * 2, out_axes=1
    ),
]


def count_kernels(call: Callable[[Tensor], Tensor], x: Tensor) -> int:
    return sum(item.ast.op is Ops.SINK for item in call(x).schedule())


def run_for(call: Call, seconds: float) -> float:
    """Seconds a call, over as many calls as fill the time."""
    calls, started = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - started < seconds:
        call()
        calls += 1
    Device[Device.DEFAULT].synchronize()
    return (time.perf_counter() - started) / calls


def compare(left: Call, right: Call, pairs: int) -> tuple[float, float]:
    """Returns (median of the pairs' ratios, median seconds of the left)."""
    for _ in range(4):
        left()
        right()
    timed = []
    for i in range(pairs):
        first, second = (left, right) if i % 2 == 0 else (right, left)
        a, b = run_for(first, 0.01), run_for(second, 0.01)
        timed.append((a, b) if i % 2 == 0 else (b, a))
    return statistics.median(a / b for a, b in timed), statistics.median(a for a, _ in timed)


@dataclass(frozen=True)
class CallCost:
    """Median seconds to build the graph of a call, and to schedule and run it."""

    build: float
    run: float


def time_call(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, float]:
    started = time.perf_counter()
    y = call(x)
    built = time.perf_counter()
    y.realize()
    return built - started, time.perf_counter() - built


def compare_calls(left: Callable, right: Callable, x: Tensor, calls: int) -> tuple[float, CallCost, CallCost]:
    """Returns (median of the pairs' ratios, what a call of each costs) for calls that find their schedule in the cache.
    They take turns."""
    for _ in range(4):
        time_call(left, x)
        time_call(right, x)
    schedules, timed = len(schedule_cache), {left: [], right: []}
    gc.disable()
    for i in range(calls):
        for call in (left, right) if i % 2 == 0 else (right, left):
            timed[call].append(time_call(call, x))
    gc.enable()
    if len(schedule_cache) != schedules:
        raise RuntimeError("a call did not find its schedule in the cache")
    ratio = statistics.median(sum(a) / sum(b) for a, b in zip(timed[left], timed[right], strict=True))
    return ratio, summarize(timed[left]), summarize(timed[right])


def summarize(timed: list[tuple[float, float]]) -> CallCost:
    return CallCost(statistics.median(build for build, _ in timed), statistics.median(run for _, run in timed))


def jitted(call: Callable[[Tensor], Tensor], x: Tensor) -> Call:
    step = TinyJit(lambda v: call(v).contiguous().realize())
    return lambda: step(x)


def loop_of(case: Case, array: np.ndarray) -> Call:
    step = TinyJit(lambda v: case.one(v).contiguous().realize())
    rows = [Tensor(row).realize() for row in array]
    return lambda: [step(row) for row in rows]


def import_if_installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def jax_of(case: Case, array: np.ndarray) -> Call | None:
    if case.library is None or (jax := import_if_installed("jax")) is None:
        return None
    jnp = jax.numpy
    call = jax.jit(jax.vmap(case.library(jnp, {k: jnp.asarray(v) for k, v in WEIGHTS.items()}), out_axes=case.out_axes))
    x = jnp.asarray(array)
    return lambda: call(x).block_until_ready()


def torch_of(case: Case, array: np.ndarray) -> Call | None:
    if case.library is None or (torch := import_if_installed("torch")) is None:
        return None
    fn = case.library(torch, {k: torch.from_numpy(v) for k, v in WEIGHTS.items()})
    call, x = torch.func.vmap(fn, out_dims=case.out_axes), torch.from_numpy(array)
    return lambda: call(x)


def make_both(case: Case, array: np.ndarray) -> tuple[Callable, Callable, Tensor]:
    """Returns the vmapped function, the one by hand and their argument; their values are the same."""
    x = Tensor(array).realize()
    mapped = vmap(case.one, out_axes=case.out_axes)
    ours, by_hand = (lambda v: case.after(mapped(v))), (lambda v: case.after(case.batched(v)))
    np.testing.assert_allclose(ours(x).numpy(), by_hand(x).numpy(), rtol=1e-4, atol=1e-4)
    return ours, by_hand, x


MOST = 1.10
"""The time of a vmapped call over that of the one by hand."""


def measure_calls(case: Case, batch: int, calls: int, over: list[str]) -> list[str]:
    ours, by_hand, x = make_both(case, NUMBERS.standard_normal((batch, *case.shape)).astype(np.float32))
    ratio, a, b = compare_calls(ours, by_hand, x, calls)
    if ratio > MOST:
        over.append(f"{case.name} at batch {batch}: {ratio:.3f}")
    parts = [f"{of_a * 1e3:.3f} / {of_b * 1e3:.3f}" for of_a, of_b in ((a.build, b.build), (a.run, b.run))]
    return [case.name, str(batch), *parts, f"{ratio:.3f}"]


def measure(case: Case, batch: int, pairs: int) -> list[str]:
    array = NUMBERS.standard_normal((batch, *case.shape)).astype(np.float32)
    ours, by_hand, x = make_both(case, array)
    kernels = f"{count_kernels(ours, x)} / {count_kernels(by_hand, x)}"
    run, seconds = compare(jitted(ours, x), jitted(by_hand, x), pairs)
    called, *_ = compare_calls(ours, by_hand, x, pairs * 10)
    others = [loop_of(case, array) if batch <= 512 else None, jax_of(case, array), torch_of(case, array)]
    return [
        case.name,
        str(batch),
        kernels,
        f"{run:.2f}",
        f"{called:.2f}",
        f"{seconds * 1e6:.0f} us",
        *[
            "-" if other is None else f"{compare(other, jitted(ours, x), max(pairs // 3, 3))[0]:.2f}"
            for other in others
        ],
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, help="pairs a figure")
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64, 512, 4096])
    parser.add_argument("--only", default="", help="functions whose name holds this")
    parser.add_argument("--calls", action="store_true", help="what a call costs, and nothing else")
    options, over = parser.parse_args(), []
    if options.calls:
        columns = ["function", "batch", "build, ms", "schedule and run, ms", "call"]
        row, title = functools.partial(measure_calls, calls=options.pairs * 20, over=over), "a call: vmapped / by hand"
    else:
        columns = ["function", "batch", "kernels", "run", "call", "vmapped", "loop", "jax", "torch"]
        row, title = functools.partial(measure, pairs=options.pairs), "vmapped over by hand; others over vmapped"
    table = Table(*columns, title=title)
    for case in CASES:
        for batch in options.batch if options.only in case.name else ():
            table.add_row(*row(case, batch))
    Console(width=None if Console().is_terminal else 120).print(table)
    for line in over:
        print(f"over {MOST} times the call by hand: {line}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
