"""Runs in a process of its own, on one state of the patches: `vmapdbg run ... vmapped.py WHAT OUT [NAME ...]`.

values    the patterns under vmap, run on the device: OUT.npz has "pattern, batch" -> value
twins     the same, batched by hand
counts    both scheduled for each target: OUT.json has "target: pattern, batch" -> [kernels under vmap, by hand]

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

from patterns import DIFFERENT, LARGE, PATTERNS, TARGETS, TWINS
from programs import make_inputs
from tinygrad import Tensor
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import vmap
from tinygrad.uop.ops import Ops

BATCHES = {"first": (3,), "second": (3,), "nested": (2, 3), "weights too": (3,)}
# what is run, not only scheduled: each pattern at axis 0, and a part of them in the other ways
RUN = {"first": (1, False), "second": (4, False), "nested": (4, False), "weights too": (4, False)}
RUN_BACKWARD = {"first": (4, True), "second": (8, True), "nested": (8, True)}


class Case:
    """A pattern whose inputs have a batch: the function under vmap, the same by hand, and the shapes of the inputs."""

    def __init__(self, name, pattern, twin, batch):
        function, shapes = pattern
        # the first input has the batch, weights have none; queries, keys and values have it all three
        shared = [batch != "weights too" and number > 0 and not is_sequence(name) for number in range(len(shapes))]
        sizes, self.axis = BATCHES[batch], 1 if batch == "second" else 0
        self.shapes = [
            shape if whole else (*shape[: self.axis], *sizes, *shape[self.axis :])
            for whole, shape in zip(shared, shapes, strict=True)
        ]
        self.vmapped = function
        for _ in sizes:
            self.vmapped = vmap(self.vmapped, in_axes=tuple(None if whole else self.axis for whole in shared))
        # a weight for each element has no axis for the rows, which one for all elements needs not have
        self.rows = [batch == "weights too" and number > 0 and len(shape) == 1 for number, shape in enumerate(shapes)]
        self.moved = [self.axis and not whole for whole in shared]
        self.twin = twin

    def by_hand(self, *inputs):
        ready = zip(inputs, self.rows, self.moved, strict=True)
        return self.twin(*[x.unsqueeze(1) if row else x.transpose(0, 1) if moved else x for x, row, moved in ready])


def is_sequence(name):
    return "attention" in name and name != "latent attention"


def make_case(name, batch):
    return Case(name, PATTERNS[name], TWINS.get(name, PATTERNS[name][0]), batch)


def make_large(name):
    function, _ = pattern = LARGE[name]
    return Case(name, pattern, function, "first")


def find_gradients(function, inputs, weight):
    for tensor in inputs:
        tensor.requires_grad = True
    return (function(*inputs) * weight).sum().gradient(*inputs)


def run_values(out, side, names):
    values = {}
    for batch, (every, backward) in [*RUN.items(), *RUN_BACKWARD.items()]:
        for number, name in enumerate(PATTERNS):
            if number % every != 0 if not names else name not in names:
                continue
            case = make_case(name, batch)
            function = getattr(case, side)
            inputs = make_inputs(case.shapes, number)
            results = [function(*inputs)]
            if backward:
                shape = results[0].shape
                # a weight that differs by element: the sum of a softmax has no gradient
                weight = np.linspace(-1, 1, results[0].numel(), dtype=np.float32).reshape(shape)
                results = find_gradients(function, inputs, Tensor(weight).realize())
            key = f"{name}, {batch}" + ", backward" * backward
            Tensor.realize(*results)
            for index, result in enumerate(results):
                values[f"{key} {index}"] = result.numpy()
    np.savez(out.with_suffix(".npz"), **{name.replace("/", "over"): value for name, value in values.items()})


def count_kernels(function, shapes, backward):
    inputs = [Tensor.empty(*shape) for shape in shapes]
    schedule_cache.clear()
    results = [function(*inputs)]
    if backward:
        results = find_gradients(function, inputs, Tensor.empty(*results[0].shape))
    return sum(item.ast.op is Ops.SINK for item in results[0].schedule(*results[1:]))


def count_targets(out):
    from tinygrad_overlay import _state

    counts = {}
    for target, (module, kind, arguments) in TARGETS.items():
        renderer = getattr(importlib.import_module(module), kind)(*arguments)
        _state.find_renderer = lambda renderer=renderer: renderer
        for key, case, backward in choose_counted(target):
            sides = (case.vmapped, case.by_hand)
            counts[f"{target}: {key}"] = [count_kernels(side, case.shapes, backward) for side in sides]
    out.with_suffix(".json").write_text(json.dumps(counts))


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
                    yield key, make_case(name, batch), backward
    for name in LARGE:
        if target != "c":
            yield f"large {name}", make_large(name), False


def main(what, out, *names):
    if what == "counts":
        count_targets(Path(out))
    else:
        run_values(Path(out), "vmapped" if what == "values" else "by_hand", names)


if __name__ == "__main__":
    main(*sys.argv[1:])
