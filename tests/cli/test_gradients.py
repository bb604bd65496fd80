"""`check --gradients` compares tinygrad's gradients with finite differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lanes import one_of
from tool import run_tool, write

# the gradients of one op of tinygrad become one percent larger
PLANT = """import importlib
try:
    gradient = importlib.import_module("tinygrad.mixin.gradient")
except ModuleNotFoundError:
    gradient = importlib.import_module("tinygrad.gradient")
stock = gradient.pm_gradient
class Broken:
    def rewrite(self, u, ctx=None):
        found = stock.rewrite(u, ctx=ctx)
        if u.op.name not in {"OP", "OTHER"} or found is None:
            return found
        return tuple(None if one is None else one * 1.01 for one in found)
gradient.pm_gradient = Broken()
"""
# without `requires_grad`, which is gone from 0.13 on
PROGRAM = """from tinygrad import Tensor
Tensor.manual_seed(1)
x = Tensor.randn(8, 3, 12, 12).realize()
w = Tensor.randn(4, 3, 3, 3).realize()
b = Tensor.zeros(4).contiguous().realize()
v = (Tensor.randn(100, 5) * 0.1).realize()
h = x.conv2d(w, b).relu().max_pool2d(2).flatten(1)
loss = (h @ v).softmax(-1).log().mean() + w.sin().sum() * 0.01
loss = loss + (w * w + 1).sqrt().pad(((0, 1), (0, 0), (0, 0), (0, 0))).sum() * 0.01
for one in loss.gradient(w, b, v):
    one.realize()
"""
# tinygrad's op, its name in the reference, the method that makes it
WRONG = [
    ("SQRT", "sqrt", "sqrt"),
    ("SHRINK", "shrink", "max_pool2d"),
    ("EXP2", "exp2", "softmax"),
    ("LOG2", "log2", "log"),
    ("PAD", "pad", "pad"),
]
CASES = [(release, *wrong) for release in ("", "0.13.0", "0.14.0") for wrong in WRONG]


def check(text: str, folder: Path, release: str, status: int) -> dict[str, Any]:
    write(folder, text)
    options = ["--tinygrad", release] if release else []
    done = run_tool("check", "snippet.py", "--gradients", "--json", *options, cwd=folder)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def calls_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for one in document["schedules"] for call in one["gradients"]]


@pytest.mark.parametrize(("release", "op", "name", "method"), one_of(CASES, 8))
def test_a_wrong_rule_is_named(release: str, op: str, name: str, method: str, tmp_path: Path) -> None:
    document = check(PLANT.replace("OP", op) + PROGRAM, tmp_path, release, status=1)
    (call,) = calls_of(document)
    assert call["asked"] == call["compared"] == 3
    assert {(tuple(one["ops"]), one["method"]) for one in call["wrong"]} == {((name,), method)}
    assert {one["code"] for one in document["findings"]} == {"VD304"}


@pytest.mark.parametrize("release", ["", "0.14.0"])
def test_right_gradients(release: str, tmp_path: Path) -> None:
    """Where the loss bends (relu of zero), what is detached, a gradient of a gradient, targets above each other."""
    text = """from tinygrad import Tensor
x = Tensor([[0.0, 1.0, -2.0], [3.0, 0.0, 0.5]]).realize()
w = Tensor([[1.0, -2.0], [0.0, 0.0], [4.0, 1.0]]).realize()
h = (x @ w).relu()
loss = (h * h.detach()).sum() + (x.maximum(0) * w.transpose()).abs().sum()
for one in loss.gradient(w, h):
    one.realize()
(first,) = (x * x * x).sum().gradient(x)
(second,) = first.sum().gradient(x)
second.realize()
for _ in range(2):
    (x.exp() * 2).sum().gradient(x)[0].realize()
"""
    document = check(text, tmp_path, release, status=0)
    counts = [(call["asked"], call["compared"]) for call in calls_of(document)]
    assert counts == [(2, 2), (1, 1), (1, 1), (1, 1), (1, 0)]
    left = {one["what"]: one["reason"] for one in document["account"]["left"]}
    assert left == {"gradients": "an earlier call at its line was compared"}


def test_gradients_are_not_compared_unless_asked_for(tmp_path: Path) -> None:
    write(tmp_path, PLANT.replace("OP", "SQRT") + PROGRAM)
    done = run_tool("check", "snippet.py", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert calls_of(json.loads(done.stdout)) == []
