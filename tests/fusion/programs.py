"""Runs in a process of its own, on one state of the patches: `vmapdbg run ... programs.py WHAT OUT [NAME ...]`.

values    the patterns and their gradients, run on the device: OUT.npz has "pattern INDEX" -> each result,
          OUT.json name -> kernels
forward   the patterns (default: all) without gradients
vmapped   the patterns under vmap (default: of each some places of the batch), with gradients: "pattern, batch INDEX"
by hand   the same, batched by hand
counts    both scheduled for each target: OUT.json has "target: pattern, batch" -> [kernels under vmap, by hand]
targets   the patterns scheduled for each target and rendered: OUT.json has target -> name -> kernels, each
          [LOCAL bytes, executed ops, threads, and the same three as the guard sees them]
large     the same for the large ones
local     random programs scheduled for each target with a limit: OUT.json has target -> name -> for each kernel, the
          bytes of all its LOCAL buffers; buffers for groups count, too

A batch is "first": at axis 0 of the inputs; "second": at axis 1; "nested": two of them, one vmap inside the other;
"weights too": a weight for each element. With "backward" it is the gradients of all inputs.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from patterns import DIFFERENT, LARGE, LIMITED, PATTERNS, TARGETS, TWINS, random_patterns
from tinygrad import Tensor
from tinygrad.codegen import get_program
from tinygrad.engine.schedule import schedule_cache
from tinygrad.uop.ops import Ops

BATCHES = {"first": (3,), "second": (3,), "nested": (2, 3), "weights too": (3,)}
# what is run, not only scheduled: each pattern at axis 0, and every so many of them in the other ways
RUN = {"first": 1, "second": 4, "nested": 4, "weights too": 4}
RUN_BACKWARD = {"first": 4, "second": 8, "nested": 8}
# these are run in each way
USUAL = ("softmax of wide rows", "RMSNorm", "attention")


def make_inputs(shapes, seed):
    # of both signs: attention on large scores has gradients that are differences of large numbers, in stock too
    noise = np.random.default_rng(seed)
    return [Tensor(noise.random(shape, dtype=np.float32) - np.float32(0.4)).realize() for shape in shapes]


def compute(function, inputs, backward):
    """Returns the result in a list, or the gradients of a weighted sum of it by all inputs."""
    for tensor in inputs:
        tensor.requires_grad = backward
    result = function(*inputs)
    if not backward:
        return [result]
    # a weight that differs by element: the sum of a softmax has no gradient
    weight = np.linspace(-1, 1, result.numel(), dtype=np.float32).reshape(result.shape)
    return (result * Tensor(weight).realize()).sum().gradient(*inputs)


def run_values(out, cases):
    """Runs each case: its name, the function, the shapes of its inputs, their seed, and whether it is backward."""
    values, kernels = {}, {}
    for name, function, shapes, seed, backward in cases:
        results = compute(function, make_inputs(shapes, seed), backward)
        schedule = results[0].schedule(*results[1:])
        kernels[name] = sum(item.ast.op is Ops.SINK for item in schedule)
        for item in schedule:
            item.run()
        for index, result in enumerate(results):
            values[f"{name} {index}".replace("/", "over")] = result.numpy()
    np.savez(out.with_suffix(".npz"), **values)
    write_json(out, kernels)


def write_json(out, found):
    out.with_suffix(".json").write_text(json.dumps(found))


def list_patterns(names, ways):
    for seed, (name, (function, shapes)) in enumerate(PATTERNS.items()):
        for backward in ways if not names or name in names else ():
            yield name + ", backward" * backward, function, shapes, seed, backward


class Case:
    """A pattern whose inputs have a batch: the function under vmap, the same by hand, and the shapes of the inputs."""

    def __init__(self, name, batch, pattern=None):
        from tinygrad.func import vmap

        self.function, shapes = pattern or PATTERNS[name]
        # the first input has the batch, weights have none; queries, keys and values have it all three
        is_sequence = "attention" in name and name != "latent attention"
        shared = [batch != "weights too" and number > 0 and not is_sequence for number in range(len(shapes))]
        sizes, self.axis = BATCHES[batch], int(batch == "second")
        self.shapes = [
            shape if whole else (*shape[: self.axis], *sizes, *shape[self.axis :])
            for whole, shape in zip(shared, shapes, strict=True)
        ]
        self.vmapped = self.function
        for _ in sizes:
            self.vmapped = vmap(self.vmapped, in_axes=tuple(None if whole else self.axis for whole in shared))
        # a weight for each element has no axis for the rows, which one for all elements needs not have
        self.rows = [batch == "weights too" and number > 0 and len(shape) == 1 for number, shape in enumerate(shapes)]
        self.moved = [self.axis and not whole for whole in shared]
        self.twin = self.function if pattern else TWINS.get(name, self.function)

    def by_hand(self, *inputs):
        ready = zip(inputs, self.rows, self.moved, strict=True)
        return self.twin(*[x.unsqueeze(1) if row else x.transpose(0, 1) if moved else x for x, row, moved in ready])


def list_batches(names, side):
    for backward, run in ((False, RUN), (True, RUN_BACKWARD)):
        for batch, every in run.items():
            for number, name in enumerate(PATTERNS):
                if name in names if names else number % every == 0 or name in USUAL:
                    case = Case(name, batch)
                    yield (
                        f"{name}, {batch}" + ", backward" * backward,
                        getattr(case, side),
                        case.shapes,
                        number,
                        backward,
                    )


def each_renderer(targets):
    """Yields each target and its renderer, for which the pass then decides."""
    from tinygrad_overlay import _state

    for target, (module, kind, arguments) in targets.items():
        renderer = getattr(importlib.import_module(module), kind)(*arguments)
        _state.find_renderer = lambda renderer=renderer: renderer
        yield target, renderer


def list_kernels(function, shapes, backward=False):
    schedule_cache.clear()
    results = compute(function, [Tensor.empty(*shape) for shape in shapes], backward)
    return [item.ast for item in results[0].schedule(*results[1:]) if item.ast.op is Ops.SINK]


def count_targets(out):
    counts = {}
    for target, _ in each_renderer(TARGETS):
        for key, case, backward in choose_counted(target):
            sides = (case.vmapped, case.by_hand)
            counts[f"{target}: {key}"] = [len(list_kernels(side, case.shapes, backward)) for side in sides]
    write_json(out, counts)


def choose_counted(target):
    """Metal has each pattern, forward and backward; each target a part of them with the batch at another place."""
    for number, name in enumerate(PATTERNS):
        for place, batch in enumerate(BATCHES):
            for backward in (False, True):
                key = f"{name}, {batch}" + ", backward" * backward
                if batch == "first":
                    chosen = target == "metal" or (target == "c" and not backward)
                elif batch == "nested" and not backward:
                    chosen = target == "metal"
                else:
                    chosen = target != "cuda" and number % 6 == place
                if chosen or target in DIFFERENT.get(key, ()):
                    yield key, Case(name, batch), backward
    for name, pattern in LARGE.items():
        if target != "c":
            yield f"large {name}", Case(name, "first", pattern), False


def run_local(out):
    """What a kernel needs of LOCAL memory, and of how many buffers, on each target that has a limit."""
    found = {}
    for target, renderer in each_renderer(LIMITED):
        kernels = {
            name: [find_local(get_program(ast, renderer).uops) for ast in list_kernels(*pattern)]
            for name, pattern in random_patterns(0, 36).items()
        }
        found[target] = {"limit": renderer.shared_max, "kernels": kernels}
    write_json(out, found)


def find_local(uops):
    return [u.ptrdtype.size * u.dtype.base.itemsize for u in uops if u.op is Ops.DEFINE_LOCAL]


def run_targets(out, patterns):
    from tinygrad_overlay.codegen._work import estimate_work

    from vmapdbg.child.program.linear_reader import read_linear
    from vmapdbg.child.program.programs import count_work

    found = {}
    for target, renderer in each_renderer(TARGETS):
        found[target] = {"limit": renderer.shared_max, "kernels": {}}
        for name, pattern in patterns.items():
            asts = list_kernels(*pattern)
            counted = [count_work(read_linear(get_program(ast, renderer).uops or [])) for ast in asts]
            works = [(work, estimate_work(ast, renderer)) for work, ast in zip(counted, asts, strict=True)]
            kernels = [[n for w in pair for n in (w.local_bytes, w.ops, w.threads)] for pair in works]
            found[target]["kernels"][name] = kernels
    write_json(out, found)


def main(what, file, *names):
    out = Path(file)
    if what in ("values", "forward"):
        run_values(out, list_patterns(names, (False, True) if what == "values" else (False,)))
    elif what in ("vmapped", "by hand"):
        run_values(out, list_batches(names, what.replace(" ", "_")))
    elif what == "counts":
        count_targets(out)
    elif what == "local":
        run_local(out)
    else:
        run_targets(out, PATTERNS if what == "targets" else LARGE)


if __name__ == "__main__":
    main(*sys.argv[1:])
