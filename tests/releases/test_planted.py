"""Faults that are planted in what comes after the scheduler, on each release: `check` finds each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_trees import run_snippet

RENDERER = """
from tinygrad import Tensor
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.uop.ops import Ops
{}
x, y = Tensor([1.5, 5.75]).realize(), Tensor([3.0, 5.75]).realize()
(x * y + 1).realize()
x.cast("int").cast("float").realize()
(x < y).realize()
"""
_OPERATOR = "ClangRenderer.code_for_op = {**ClangRenderer.code_for_op, Ops.%s: lambda a, b, dtype: f'({a}%s{b})'}"
RENDERED = {
    "a product is a sum": _OPERATOR % ("MUL", "+"),
    "less is less or equal": _OPERATOR % ("CMPLT", "<="),
    "casts are left out": "ClangRenderer.render_cast = lambda self, dtype, value: value",
    "constants are left out": "ClangRenderer.render = (lambda render: lambda *a: render(*a).replace('1.0f', '0.0f'))"
    "(ClangRenderer.render)",
}
# two kernels, and a variable; the faults are in the last two replays
REPLAY = """
from tinygrad import Tensor, TinyJit, Variable
from tinygrad.engine import jit
call, given = jit.CapturedJit.__call__, []
def replay(captured, inputs, variables, *rest):
  given.append(list(inputs))
  {}
@TinyJit
def step(x, n):
  y = (x * n).contiguous().realize()
  return (y + x.sum()).realize()
n = Variable("n", 1, 9)
for i in range(1, 7):
  if i == 5:
    jit.CapturedJit.__call__ = replay
  step(Tensor([1.0 * i, 2.0]).realize(), n.bind(i))
"""
REPLAYED = {
    "an old value of a variable": "return call(captured, inputs, dict.fromkeys(variables, 2), *rest)",
    "the inputs of the call before": "return call(captured, given[0], variables, *rest)",
    "nothing runs": "return captured.ret",
    "the first kernel is dropped": """if hasattr(captured, "linear"):
    captured.linear = captured.linear.replace(src=captured.linear.src[1:])
  else:
    captured._jit_cache = captured._jit_cache[1:]
    captured._input_replace = {(j - 1, i): k for (j, i), k in captured._input_replace.items() if j}
  return call(captured, inputs, variables, *rest)""",
}
# the first kernel depends on the input, the second one runs once only
PRUNE = """
from tinygrad import Tensor, TinyJit
from tinygrad.engine import jit
{}
w = Tensor([1.0, 2.0]).realize()
def step(x):
  y = (x * w).contiguous().realize()
  k = (w * 2).contiguous().realize()
  return (y.sum() + k).realize()
step = TinyJit(step, prune=True)
for i in range(1, 6):
  step(Tensor([1.0 * i, 2.0]).realize())
"""
PRUNED = {
    "a kernel that depends on the input": """if hasattr(jit, "prune_linear"):
  prune = jit.prune_linear
  def prune_more(linear, needed):
    kept, once = prune(linear, needed)
    return kept.replace(src=kept.src[1:]), once.replace(src=kept.src[:1] + once.src)
  jit.prune_linear = prune_more
else:
  update = jit.update_depends
  def update_less(depends, items):
    update(depends, items)
    depends.difference_update(items[0].bufs)
  jit.update_depends = update_less"""
}
PROGRAMS = {
    **{f"renderer: {name}": RENDERER.replace("{}", fault) for name, fault in RENDERED.items()},
    **{f"replay: {name}": REPLAY.replace("{}", fault) for name, fault in REPLAYED.items()},
    **{f"prune=True: {name}": PRUNE.replace("{}", fault) for name, fault in PRUNED.items()},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_planted_fault_is_found(name: str, tree: Path, tmp_path: Path) -> None:
    # without a graph of kernels, which would be one launch
    done = run_snippet(tree, tmp_path, PROGRAMS[name], "check", DEV="CPU", JIT="2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "wrong" in done.stdout.splitlines()[0]
