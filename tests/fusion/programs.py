"""Runs in a process of its own, on one state of the patches: `vmapdbg run ... programs.py WHAT OUT [NAME ...]`.

values    the patterns (default: all) and their gradients, run on the device: OUT.npz has name -> value, OUT.json
          name -> kernels
forward   the same without gradients
targets   the patterns scheduled for each target and rendered: OUT.json has target -> name -> kernels, each
          [LOCAL bytes, executed ops, threads, and the same three as the guard sees them]
large     the same for the large ones
local     random programs scheduled for each target with a limit: OUT.json has target -> name -> for each kernel, the
          bytes of all its LOCAL buffers; buffers for groups count, too
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from patterns import LARGE, LIMITED, PATTERNS, TARGETS, random_patterns
from tinygrad import Tensor
from tinygrad.codegen import get_program
from tinygrad.uop.ops import Ops


def make_inputs(shapes, seed):
    # of both signs: attention on large scores has gradients that are differences of large numbers, in stock too
    noise = np.random.default_rng(seed)
    return [Tensor(noise.random(shape, dtype=np.float32) - np.float32(0.4)).realize() for shape in shapes]


def run_kernels(*tensors):
    schedule = tensors[0].schedule(*tensors[1:])
    kernels = sum(item.ast.op is Ops.SINK for item in schedule)
    for item in schedule:
        item.run()
    return kernels


def run_values(out, names, backward=True):
    values, kernels = {}, {}
    for name in names or PATTERNS:
        function, shapes = PATTERNS[name]
        inputs = make_inputs(shapes, list(PATTERNS).index(name))
        result = function(*inputs)
        kernels[name] = run_kernels(result)
        values[name] = result.numpy()
        if not backward:
            continue
        for tensor in inputs:
            tensor.requires_grad = True
        result = function(*inputs)
        # a weight that differs by element: the sum of a softmax has no gradient
        weight = Tensor(np.linspace(-1, 1, result.numel(), dtype=np.float32).reshape(result.shape)).realize()
        gradients = (result * weight).sum().gradient(*inputs)
        kernels[f"{name}, backward"] = run_kernels(*gradients)
        for number, gradient in enumerate(gradients):
            values[f"{name}, backward {number}"] = gradient.numpy()
    np.savez(out.with_suffix(".npz"), **{name.replace("/", "over"): value for name, value in values.items()})
    out.with_suffix(".json").write_text(json.dumps(kernels))


def run_local(out):
    """What a kernel needs of LOCAL memory, and of how many buffers, on each target that has a limit."""
    from tinygrad.engine.schedule import schedule_cache
    from tinygrad_overlay import _state

    found = {}
    for target, (module, kind, arguments) in LIMITED.items():
        renderer = getattr(importlib.import_module(module), kind)(*arguments)
        _state.find_renderer = lambda renderer=renderer: renderer
        kernels = {}
        for name, (function, shapes) in random_patterns(0, 36).items():
            schedule_cache.clear()
            schedule = function(*[Tensor.empty(*shape) for shape in shapes]).schedule()
            asts = [item.ast for item in schedule if item.ast.op is Ops.SINK]
            kernels[name] = [find_local(get_program(ast, renderer).uops) for ast in asts]
        found[target] = {"limit": renderer.shared_max, "kernels": kernels}
    out.with_suffix(".json").write_text(json.dumps(found))


def find_local(uops):
    return [u.ptrdtype.size * u.dtype.base.itemsize for u in uops if u.op is Ops.DEFINE_LOCAL]


def run_targets(out, patterns):
    from tinygrad.engine.schedule import schedule_cache
    from tinygrad_overlay import _state
    from tinygrad_overlay.codegen._work import estimate_work

    from vmapdbg.child.program.linear_reader import read_linear
    from vmapdbg.child.program.programs import count_work

    found = {}
    for target, (module, kind, arguments) in TARGETS.items():
        renderer = getattr(importlib.import_module(module), kind)(*arguments)
        _state.find_renderer = lambda renderer=renderer: renderer
        found[target] = {"limit": renderer.shared_max, "kernels": {}}
        for name, (function, shapes) in patterns.items():
            schedule_cache.clear()
            schedule = function(*[Tensor.empty(*shape) for shape in shapes]).schedule()
            asts = [item.ast for item in schedule if item.ast.op is Ops.SINK]
            counted = [count_work(read_linear(get_program(ast, renderer).uops or [])) for ast in asts]
            works = [(work, estimate_work(ast, renderer)) for work, ast in zip(counted, asts, strict=True)]
            kernels = [[n for w in pair for n in (w.local_bytes, w.ops, w.threads)] for pair in works]
            found[target]["kernels"][name] = kernels
    out.with_suffix(".json").write_text(json.dumps(found))


def main(what, out, *names):
    if what in ("values", "forward"):
        run_values(Path(out), names, what == "values")
    elif what == "local":
        run_local(Path(out))
    else:
        run_targets(Path(out), PATTERNS if what == "targets" else LARGE)


if __name__ == "__main__":
    main(*sys.argv[1:])
