"""`check` judges each call of a TinyJit by what the call was given, on each release."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from release_trees import run_snippet

OTHER_ORDER = """
from tinygrad import Tensor, TinyJit

@TinyJit
def difference(named):
  return (named["a"] - named["b"]).realize()

for i in range(4):
  named = {"a": Tensor([5.0 + i]).realize(), "b": Tensor([2.0]).realize()}
  difference(named if i < 3 else dict(reversed(named.items())))
"""
SWAPPED = """
from tinygrad import Tensor, TinyJit
from tinygrad.engine import jit

@TinyJit
def difference(x, y):
  return (x - y).realize()

for i in range(4):
  if i == 3:
    prepare = jit._prepare_jit_inputs
    jit._prepare_jit_inputs = lambda *given: (prepare(*given)[0][::-1], *prepare(*given)[1:])
  difference(Tensor([5.0 + i]).realize(), Tensor([2.0]).realize())
"""
LATE = """
from tinygrad import Tensor, TinyJit
from tinygrad.engine import jit

@TinyJit
def double(x):
  return (x * 2).realize()

for i in range(9):
  if i == 7:
    jit.CapturedJit.__call__ = lambda captured, *given: captured.ret
  double(Tensor([1.0 + i]).realize())
"""
# far too fast for the comparison: not all replays are in the sample
LAST = """
from tinygrad import Tensor, TinyJit
from tinygrad.engine import jit

@TinyJit
def double(x):
  return (x * 2).realize()

inputs = [Tensor([1.0 + i]).realize() for i in range(8)]
for i in range(400):
  if i == 399:
    jit.CapturedJit.__call__ = lambda captured, *given: captured.ret
  double(inputs[i % 8])
"""
# the assign is pending when the function returns: the next call realizes it, but no replay requests it again
DROPPED = """
from tinygrad import Tensor, TinyJit

@TinyJit
def step(w):
  loss = (w * w).sum()
  w.assign(w - 0.5 * w)
  return loss

w = Tensor([4.0, 8.0]).contiguous().realize()
for i in range(4):
  step(w)
"""
# 0.13.0 gives the buffer of h to the memory planner; later releases hold what live Tensors reach
ARENA = """
from tinygrad import Tensor, TinyJit
from tinygrad.engine import jit
jit.all_tensors = []

@TinyJit
def step(x):
  global later
  h = (x * 2).contiguous()
  later = h + 1
  return h.sum().realize()

x = Tensor([1.0, 2.0, 3.0]).realize()
for i in range(3):
  step(x)
later.realize()
"""
PICKLED = """
import pickle
from tinygrad import Tensor, TinyJit

def double(x):
  return (x * 2).realize()

jitted = TinyJit(double)
for i in range(3):
  jitted(Tensor([float(i)]).realize())
loaded = pickle.loads(pickle.dumps(jitted))
for i in range(3):
  loaded(Tensor([float(i)]).realize())
"""
DELETED = """
import gc
import pickle
from tinygrad import Tensor, TinyJit
gc.collect()
gc.disable()

def double(x):
  return (x * 2).realize()

jitted = TinyJit(double)
for i in range(4):
  jitted(Tensor([float(i)]).realize())
data = pickle.dumps(jitted)
del jitted
kept = [one for one in gc.get_objects() if type(one).__name__ in ("CapturedJit", "JitCall", "RealizeCall", "Packer")]
print(len(kept), "objects are kept")
loaded = pickle.loads(data)
for i in range(4):
  print(loaded(Tensor([10.0 * i]).realize()).tolist())
"""
UNSEEN = """
from tinygrad import Tensor, TinyJit, tensor
from tinygrad.engine.realize import run_schedule
tensor.run_schedule = run_schedule

@TinyJit
def step(t):
  return (t.exp() + t.sum()).realize()

for i in range(4):
  out = step(Tensor([float(i), 1.0, 2.0]).realize())
"""
LOADED_WRONG = PICKLED.replace("loaded = ", "from tinygrad.engine import jit\nloaded = ") + (
    "  jit.CapturedJit.__call__ = lambda captured, *given: captured.ret\n"
)
PRUNED = """
from tinygrad import Tensor, TinyJit
w = Tensor([1.0, 2.0, 3.0]).realize()

def step(x):
  k = (w * 2).contiguous().realize()
  return (x + k).realize(), ((w + 1).contiguous() * x).realize(), (w.sum() * 3).contiguous()

jitted = TinyJit(step, prune=True)
for i in range(5):
  jitted(Tensor([1.0 * i, 2.0, 3.0]).realize())
"""
PRUNED_ASSIGN = PRUNED.replace("k = ", "total.assign(total + x).realize()\n  k = ").replace(
    "def step", "total = Tensor([1.0, 2.0, 3.0]).contiguous().realize()\n\ndef step"
)
PRUNED_RANDOM = PRUNED.replace("x + k", "x + k + Tensor.rand(3)")
PRUNED_STALE = PRUNED + "  if i == 3:\n    w.assign(w + 1).realize()\n"
OPTIMIZED = PRUNED.replace("prune", "optimize")
OPTIMIZED_ASSIGN = PRUNED_ASSIGN.replace("prune", "optimize")
# the replay of `add` is not captured: a replay of `step` doubles what the buffer of `add` holds
NESTED = """
from tinygrad import Tensor, TinyJit

@TinyJit
def add(x):
  return (x + 1).realize()

@TinyJit
def step(x):
  return (add(x) * 2).realize()

for i in range(8):
  (add if i < 3 else step)(Tensor([1.0 * i]).realize())
"""
RESULTS = """
from tinygrad import Tensor, TinyJit
total = Tensor([0.0, 0.0]).contiguous().realize()

@TinyJit
def nothing(x):
  total.assign(total + x).realize()

@TinyJit
def many(x):
  return {"a": (x + 1).realize(), "b": [(x * 2).realize(), x.sum()]}

for n in (2, 3):
  for i in range(5):
    many(Tensor([1.0 * i] * n).realize())
    nothing(Tensor([1.0 * i, 2.0]).realize())
  many.reset()
"""
OTHER_NUMBER = """
from tinygrad import Tensor, TinyJit

@TinyJit
def scale(x, by):
  return (x * by).realize()

for i in range(5):
  scale(Tensor([1.0, 2.0]).realize(), 3.0 if i < 4 else 4.0)
"""
VARIABLES = """
from tinygrad import Tensor, TinyJit, Variable

@TinyJit
def head(x, n):
  return (x[:, :n].sum(1) * n).realize()

@TinyJit
def add(x):
  return (x + 1).realize()

x = Tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]).contiguous().realize()
for i in range(1, 5):
  n = Variable("n", 1, 4).bind(i)
  head(x, n)
  add(x[:, :n])[:2, :i].contiguous().realize()
"""
# a schedule reads what earlier schedules of the call have written, some of it in memory of its own
STATE = """
from tinygrad import Tensor, TinyJit
total, steps = Tensor.zeros(3).contiguous().realize(), Tensor.zeros(1).contiguous().realize()

@TinyJit
def step(x, scale=None):
  h = (x * 2).contiguous().realize()
  total.assign(total + h).realize()
  steps.assign(steps + 1).realize()
  total.assign(total * scale).realize()
  return (h.sum() / steps + total.max()).realize()

for i in range(17):
  step(Tensor([1.0, 2.0, i]).realize(), scale=Tensor([0.5]).realize())
"""

# on 0.12.0 each device has a BUFFER of its own
SHARDED = """
from tinygrad import Tensor, TinyJit
devices = ("CPU:1", "CPU:2")

@TinyJit
def add(x, others):
  return (x + others[0]).realize()

for i in range(5):
  x = Tensor([1.0 + i, 2.0 + i]).shard(devices, axis=0).realize()
  add(x, [Tensor([3.0, 4.0 * i]).shard(devices, axis=None).realize()])
"""

# on 0.12.0 the second assign of a call goes to memory of its own, and replays go on with the old memory
TWICE = """
from tinygrad import Tensor, TinyJit
total = Tensor.zeros(2).contiguous().realize()

@TinyJit
def step(x):
  total.assign(total * 2)
  total.assign(total + x)
  return total.realize()

for i in range(5):
  step(Tensor([1.0, i]).realize())
"""


@dataclass(frozen=True)
class Case:
    """A program, the codes of its findings, and what `check` prints."""

    text: str
    codes: tuple[str, ...] = ()
    says: tuple[str, ...] = ("all right",)


CASES = {
    "items in another order": Case(
        OTHER_ORDER, ("VD201",), ("replay 2 by TinyJit", "first at [0]: -6.0, should be 6.0")
    ),
    "swapped inputs": Case(SWAPPED, ("VD201",), ("replay 2 by TinyJit", "first at [0]: -6.0, should be 6.0")),
    "a late fault": Case(
        LATE, ("VD201",), ("replay 6 by TinyJit", "first at [0]: 14.0, should be 16.0", "so in 2 of the")
    ),
    "a fault of the last call": Case(
        LAST, ("VD201",), ("not in the sample: the first 16", "first at [0]: 14.0, should be 16.0")
    ),
    "a dropped assign": Case(DROPPED, ("VD206",), ("TinyJit did not capture the assign", "should be 0.5")),
    "memory of the planner": Case(ARENA, ("VD212",), ("it reads a buffer of 3 float that no kernel wrote",)),
    "a loaded jit": Case(PICKLED),
    "a loaded jit, wrong": Case(LOADED_WRONG, ("VD201",), ("replay 3 by TinyJit", "first at [0]: 0.0, should be 2.0")),
    "prune=True": Case(PRUNED),
    "prune=True, an assign": Case(PRUNED_ASSIGN),
    "prune=True, a random number": Case(PRUNED_RANDOM, (), ("(prune=True runs an assign once only)",)),
    "prune=True, its constant has changed": Case(
        PRUNED_STALE, (), ("1 not compared: 1 replay (a buffer has changed that kernels may have read",)
    ),
    "a jit in a jit": Case(NESTED, (), ("(its function calls another TinyJit, whose kernels are not captured again)",)),
    "results, and a reset": Case(RESULTS),
    "another argument": Case(OTHER_NUMBER, (), ("argument 1 has another value than in the captured call",)),
    "variables": Case(VARIABLES),
    "state": Case(STATE),
    "devices": Case(SHARDED),
    "two assigns": Case(TWICE),
}


# 0.12.0 copies the buffers of a loaded jit, and an assign is no output for prune=True. Only this release has
# optimize=True, which moves the buffers of a jit away from its Tensors. A BUFFER that a UOp holds keeps its memory
_TOTAL = ("assigned buffer 0 (3,) float: 3 of 3 elements wrong",)
_COPIES = ("(the jit was loaded from a pickle: its buffers are copies",)
ONLY_12 = {
    "a loaded jit": Case(PICKLED, (), _COPIES),
    "a loaded jit, wrong": Case(LOADED_WRONG, (), _COPIES),
    "prune=True, an assign": Case(PRUNED_ASSIGN, ("VD201", "VD201"), _TOTAL),
    "optimize=True": Case(OPTIMIZED),
    "optimize=True, an assign": Case(OPTIMIZED_ASSIGN, ("VD201", "VD201"), _TOTAL),
    "memory of the planner": Case(ARENA),
    "launches that are not seen": Case(
        UNSEEN, (), ("2 not compared: 2 replays (what its kernels write was not seen)",)
    ),
    "two assigns": Case(TWICE, ("VD201",), ("replay 1 by TinyJit", "should be 7.0")),
}


@pytest.mark.parametrize("name", {**CASES, **ONLY_12})
def test_a_call_is_judged_by_what_it_was_given(name: str, release: str, tree: Path, tmp_path: Path) -> None:
    cases = CASES if release != "0.12.0" else {**CASES, **ONLY_12}
    if name not in cases:
        pytest.skip("this release has no optimize=True")
    case = cases[name]
    settings = {"COLUMNS": "400", "DEV": "CPU"}
    done = run_snippet(tree, tmp_path, case.text, "check", **settings)
    assert done.returncode == int(bool(case.codes)), done.stdout + done.stderr
    assert all(words in done.stdout for words in case.says), done.stdout
    assert ("all right" in done.stdout) == (case.says == ("all right",))
    found = run_snippet(tree, tmp_path, case.text, "check", "--json", **settings)
    assert tuple(one["code"] for one in json.loads(found.stdout)["findings"]) == case.codes


@pytest.mark.parametrize("command", [("check",), ("run", "--check")], ids=" ".join)
def test_a_deleted_jit_is_not_kept(command: tuple[str, ...], release: str, tree: Path, tmp_path: Path) -> None:
    done = run_snippet(tree, tmp_path, DELETED, *command, DEV="CPU")
    # 0.12 gives a loaded jit the results of the original as long as anything holds these
    printed = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("[") or "kept" in line]
    assert printed == ["0 objects are kept", "[0.0]", "[20.0]", "[40.0]", "[60.0]"], done.stdout + done.stderr
