"""Programs whose peak of memory is measured twice: by the tool, and by the program itself without the tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tool import RunSample, run_command

SAMPLED = """
from tinygrad.device import Buffer
from tinygrad.helpers import GlobalCounters
_most, _allocate = [0], Buffer.allocate
def _sampled(*given, **options):
    made = _allocate(*given, **options)
    _most[0] = max(_most[0], GlobalCounters.mem_used)
    return made
Buffer.allocate = _sampled
exec(compile(open("snippet.py").read(), "snippet.py", "exec"))
print("PEAK", _most[0])
"""
EAGER = """
from tinygrad import Tensor
x, w1, w2 = Tensor.rand(64, 128).realize(), Tensor.rand(128, 256).realize(), Tensor.rand(256, 10).realize()
w1.requires_grad = w2.requires_grad = True
for step in range(3):
    loss = ((x @ w1).relu() @ w2).log_softmax().sum()
    first, second = loss.gradient(w1, w2)
    w1, w2 = (w1 - 0.01 * first).realize(), (w2 - 0.01 * second).realize()
"""
JIT = """
from tinygrad import Tensor, TinyJit, nn
Tensor.training = True
layers = [nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 4)]
parameters = nn.state.get_parameters(layers)

@TinyJit
def step(x, y):
    for layer in layers[:-1]:
        x = layer(x).relu()
    loss = layers[-1](x).sparse_categorical_crossentropy(y)
    moved = [p - 0.1 * g for p, g in zip(parameters, loss.gradient(*parameters))]
    for p, new in zip(parameters, moved):
        p.assign(new)
    return loss.realize(*parameters)

for number in range(4):
    step(Tensor.rand(128, 32).realize(), Tensor.randint(128, high=4).realize()).item()
"""
LARGE = """
from tinygrad import Tensor
a, b = Tensor.rand(5000).realize(), Tensor.rand(5000).realize()
d = ((a.reshape(5000, 1) - b.reshape(1, 5000)) ** 2).contiguous()
total = (d.min(axis=1) + d.max(axis=0)).sum().realize()
c = Tensor.rand(1000, 1000).realize()
print((c @ c).sum().item())
"""
PROGRAMS = {"eager": EAGER, "jit": JIT, "large": LARGE}
MEASURED = """
from tinygrad import Tensor
from bench.{module} import {table}
Tensor.manual_seed(0)
run = {table}[{name!r}]()
for _ in range(3):
    run()
"""


def measure_alone(folder: Path, text: str, *command: str, **variables: str) -> int:
    """Returns the most bytes at a time of a program that samples the counter itself, run by `command`."""
    (folder / "snippet.py").write_text(text)
    (folder / "sampled.py").write_text(SAMPLED)
    done = run_command(*command, "sampled.py", cwd=folder, **variables)
    assert "PEAK" in done.stdout, done.stderr[-2000:]
    return int(done.stdout.split()[-1])


def watch(run_sample: RunSample, text: str, *options: str) -> dict[str, Any]:
    """Returns the capture of a program with the memory watched, as JSON."""
    done = run_sample("show", "snippet.py", "--memory", "--json", *options, text=text)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check_peak(capture: dict[str, Any], alone: int) -> dict[str, Any]:
    """Checks that the peak is the program's own within 1 %, and that what is live adds up to it. Returns the Memory."""
    memory = capture["memory"]
    assert memory is not None, capture["missing"]
    assert abs(memory["peak"] - alone) <= 0.01 * alone, (memory["peak"], alone)
    assert capture["peak_bytes"] == memory["peak"]
    live = sum(one["value"]["bytes"] for one in memory["live"])
    assert live + memory["rest_bytes"] + memory["unused"] == memory["peak"]
    assert 0 <= memory["unused"] < memory["peak"]
    assert max(size for _, size in memory["timeline"]) == memory["peak"]
    return memory
