"""`check` on each release as it is: what is right is right for the numpy reference, a fault of a release is found."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from release_trees import RELEASES, run_snippet

RIGHT = """
from tinygrad import Tensor, Variable, dtypes
Tensor.manual_seed(1)
a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
made = {
    "sum": a.sum(0) * 2,
    "attention": a.softmax(1) @ a.T,
    "movement": a.flip(1).pad(((1, 0), (0, 2))).roll(1, 1).cat(a.pad(((0, 1), (0, 2)))),
    "stack": Tensor.stack(a, a + 1).permute(2, 0, 1),
    "choice": (a > 2).where(a, 0).sum(),
    "taken": a.gather(1, Tensor([[0, 2], [1, 1]])),
    "indexed": a[Tensor([1, 0, 1])],
    "integers": Tensor([-7, 7, 8]) // Tensor([2, -2, 3]) + Tensor([-7, 7, 8]) % Tensor([2, -2, 3]),
    "wrapped": Tensor([250, 7], dtype=dtypes.uint8) + 10,
    "cast": (a * -1.5).cast(dtypes.int),
    "bits": a.bitcast(dtypes.uint32),
    "mean": a.cast(dtypes.uint8).mean(),
    "half": a.half().cumsum(1),
    "bfloat16": (a.bfloat16() * 1.3).sum(1),
    "random": Tensor.randn(3, 4).dropout(0.5),
    "conv": Tensor.rand(1, 2, 6, 6).conv2d(Tensor.rand(3, 2, 3, 3), padding=1).max_pool2d(),
    "entropy": a.sparse_categorical_crossentropy(Tensor([0, 2])),
    "sorted": a.sort(1, descending=True)[0],
    "symbolic": a[:, : Variable("n", 1, 3).bind(2)].sum(),
}
for value in made.values():
    value.realize()
x = Tensor.zeros(4).contiguous().realize()
x[1:3] = 5.0
x.realize()
x.assign(x + 1).realize()
over = Tensor.zeros(4).contiguous()
over.assign(Tensor.ones(4)).realize()
chosen = Tensor.zeros(4, 3, dtype=dtypes.int).contiguous()
chosen[Tensor([0, 2])] = 9
chosen.realize()
shards = Tensor.arange(4).float().contiguous().realize().shard(("CPU:0", "CPU:1"), 0)
sharded = (shards * 2 + 1).realize()
"""


def check(tree: Path, folder: Path, text: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_snippet(tree, folder, text, "check", COLUMNS="100", DEV="CPU", **settings)


# *** programs that are right, and programs that some releases compute wrong

WRONG_LINEAR = (
    "the kernel as scheduled computes it right, its linear program the same wrong values: "
    "code generation made the fault"
)
RIGHT_LINEAR = (
    "the kernel as scheduled and its linear program compute it right: "
    "the renderer, the compiler or the machine made the fault"
)
SAME_VALUES = "the kernel as scheduled computes the same wrong values: the scheduler made the fault"

SOFTMAX = """
from tinygrad import Tensor
x = Tensor([[0.5 * i * j % 3 for i in range(32)] for j in range(8)]).realize()
y = x.softmax().realize()
"""
DROPPED = """
from tinygrad import Tensor, TinyJit

@TinyJit
def fn(x, y):
  return x.reshape(1, 2, 1).expand(1, 2, 2)[:, :, (y > 0).where(1, 0)].realize(), (x * 2 + 1).realize()

for i in range(4):
  x, y = Tensor([[1.0 + i, 2.0 + i]]).realize(), Tensor([0.5, -7.0]).realize()
  fn(x, y)
"""
JOINED = """
from tinygrad import Tensor, TinyJit

@TinyJit
def fn(x, y):
  h = (x * 10).realize()
  return h.reshape(1, 2, 1).expand(1, 2, 2)[:, :, (y > 0).where(1, 0)].realize()

for i in range(4):
  fn(Tensor([[1.0 + i, 2.0 + i]]).realize(), Tensor([0.5, -7.0]).realize())
"""
CLONED = """
from tinygrad import Tensor, TinyJit

@TinyJit
def fn(x):
  return (x.clone() + 1).realize()

for i in range(4):
  fn(Tensor([float(i)]).realize())
"""
LOST = """
from tinygrad import Tensor, dtypes
a = Tensor([1.0, 2.0]).realize()
a.bitcast(dtypes.uint32).assign(Tensor([0x40800000, 0x40400000], dtype=dtypes.uint32)).realize()
"""
REPEATED = """
from tinygrad import Tensor
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
y = x.relu().unsqueeze(0).expand(2, 2, 3).flatten()
z = (y / y.sum()).realize()
"""
BROKEN_CODE = """
from tinygrad import Tensor
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.uop import Ops
ClangRenderer.code_for_op = {**ClangRenderer.code_for_op, Ops.SQRT: lambda x, dtype: f"({x})"}
x = Tensor([4.0, 9.0, 16.0]).realize()
y = ((x * 4).sqrt() + 1).realize()
"""
BROKEN_LOWERING = """
import tinygrad.codegen as codegen
from tinygrad import Tensor
wrong = lambda sink: sink.substitute({u: u.const_like(3.5) for u in sink.toposort() if u.arg == 2.5})
x, lower = Tensor([1.0, 2.0, 3.0]).realize(), codegen.full_rewrite_to_sink
codegen.full_rewrite_to_sink = lambda *asked, **options: wrong(lower(*asked, **options))
y = (x * 2.5).realize()
"""
BROKEN_SCHEDULE = """
from tinygrad import Tensor
from tinygrad.schedule import indexing
from tinygrad.uop import Ops
move = indexing.apply_movement_op
indexing.apply_movement_op = lambda op, *rest: rest[-1] if op is Ops.FLIP else move(op, *rest)
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
y = (x.sum(0).flip(0) / x.sum()).realize()
"""
ASSIGNED = """
from tinygrad import Tensor
from tinygrad.schedule import indexing
from tinygrad.uop import Ops
x, y = Tensor([1.0, 2.0, 3.0, 4.0]).contiguous().realize(), Tensor([7.0, 8.0]).realize()
move = indexing.apply_movement_op
indexing.apply_movement_op = lambda op, *rest: rest[-1] if op is Ops.FLIP else move(op, *rest)
x[1:3] = y.flip(0)
x.realize()
"""
# values of many kinds on two devices, each a buffer between kernels
SHARDED_RIGHT = """from tinygrad import Tensor
where = ("CPU:0", "CPU:1")
a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [1.0, 1.0, 2.0]]).shard(where, axis=0).realize()
w = Tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0], [2.0, 1.0, 0.5]]).shard(where).realize()
y = (a @ w).softmax(1)
((y.sum(0, keepdim=True) * a).contiguous() + 1).sum(0).realize()
(a.reshape(2, 2, 3).sum(1).contiguous() * 3).to("CPU").realize()
"""
# 0.13 schedules the zeros of the state with the first write to them
FIRST_STEP = """from tinygrad import Tensor
from tinygrad.nn.optim import Adam
Tensor.training = True
weight = Tensor([[1.0, 2.0], [3.0, 4.0]])
optimizer = Adam([weight])
(weight * weight).sum().backward()
optimizer.step()
"""
# a captured step on two devices, which hands memory from one schedule to the next
SHARDED_JIT = """from tinygrad import Tensor, TinyJit
where = ("CPU:1", "CPU:2")
@TinyJit
def step(x):
    y = (x.shard(where, 0) + 1).realize()
    return (y.sum(0) * 2).realize()
for number in range(4):
    assert step(Tensor.full((4,), float(number)).contiguous().realize()).item() == 8 * number + 8
"""
# the shards are summed up, and each device has the sum
ALL_REDUCED = """from tinygrad import Tensor
from tinygrad.uop import Ops
where = ("CPU:1", "CPU:2")
a = Tensor([[1.0, 2.0], [4.0, 5.0], [7.0, 8.0], [1.0, 1.0]]).shard(where, axis=0).realize()
total = Tensor(a.uop.allreduce(Ops.ADD, where))
assert total.tolist() == [[8.0, 10.0], [5.0, 6.0]] * 2, total.tolist()
"""


@dataclass(frozen=True)
class Case:
    """A program, the releases that compute it wrong, and what `check` prints: then (`found`), otherwise (`right`), and
    on no release (`never`). `left` is the only reason why something of it may be left over."""

    text: str
    wrong_on: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    left: str = ""
    settings: dict[str, str] = field(default_factory=dict)


def plant(text: str, line: int, blamed: str) -> Case:
    """Returns the case of a fault that is planted on each release."""
    return Case(text, RELEASES, (blamed, f"[snippet.py:{line}] wrong in the same way"))


PRODUCTS = """
from tinygrad import Tensor
a, b = (Tensor([100, 100, 3, 4], dtype="int8").realize() for _ in range(2))
(a * b).sum().realize()
"""
MADE_IN_C = "the renderer, the compiler or the machine made the fault"
SLICES = """
from tinygrad import Tensor, Variable
t = Tensor.arange(12).float().reshape(3, 4).contiguous().realize()
i, j = Variable("i", 1, 3).bind(2), Variable("j", 0, 2).bind(1)
for x in (t[:i].sum(0), t[:, :i].sum(1), t[:i].max(), t[i - 1], t[:, i : i + 1], t[j : j + 1]):
  print(x.tolist())
for x in (t[:i].reshape(i * 4).sum(), (t[:i] * 2).pad(((0, 3 - i), (0, 0))), t[:, :i].softmax(1).sum()):
  print(x.tolist())
"""
REPLAY = "snippet.py:10 output 0 (1, 2, 2) float: 4 of 4 elements wrong"
CASES = {
    # the counter of the random numbers, in one schedule
    "right": Case(RIGHT, right=("compared with the numpy reference",), left="several writes change it"),
    "softmax": Case(SOFTMAX, settings={"PCONTIG": "0"}),
    # 0.14.0 resets the accumulator in the loop that adds to it
    "fused softmax": Case(
        SOFTMAX,
        ("0.14.0",),
        ("snippet.py:4 output 0 (8, 32) float: 256 of 256 elements wrong", "first wrong buffer: STORE", WRONG_LINEAR),
        settings={"PCONTIG": "2"},
    ),
    # 0.12 and 0.13 give a kernel of the replay the buffer of another input
    "dropped input of a replay": Case(
        DROPPED, ("0.12.0", "0.13.0"), (REPLAY, "first at [0, 0, 0]: 0.5, should be", "replays compared: ", "1, 2")
    ),
    # from 0.13 on what one schedule of a replay hands to another has memory of its own in each replay
    "joined schedules of a replay": Case(
        JOINED,
        ("0.12.0", "0.13.0"),
        (REPLAY, "first at [0, 0, 0]: 0.5, should be", "replays compared: ", "1, 2"),
        never=("replays of it",),
    ),
    # from 0.13 on a clone is an assign to a buffer; the snippet does not hold it, and replays do not use it
    "private memory of a replay": Case(CLONED),
    # 0.12 writes through a BITCAST to memory that is never read
    "lost assign": Case(LOST, ("0.12.0",), ("no kernel writes to it: the scheduler lost the assign",)),
    # code generation of 0.12 sums up what is repeated too often
    "first wrong buffer": Case(
        REPEATED,
        ("0.12.0",),
        (
            "first wrong buffer: REDUCE_AXIS",
            "wrong, first at [0]: 126.0, should be 42.0",
            WRONG_LINEAR,
            "realized: ending-ranges: r0 ends at EXPAND 16 (indexing.py:",
        ),
    ),
    "renderer": plant(BROKEN_CODE, 7, RIGHT_LINEAR),
    "code generation": plant(BROKEN_LOWERING, 7, WRONG_LINEAR),
    "scheduler": plant(BROKEN_SCHEDULE, 8, SAME_VALUES),
    "integer promotion": Case(
        PRODUCTS, RELEASES, ("20025, should be 57", f"{MADE_IN_C} it is C's integer promotion: C computes"), right=()
    ),
    "symbolic slices": Case(SLICES, never=("not checked",)),
    "write to a part of a buffer": Case(ASSIGNED, RELEASES, ("first wrong buffer: ", SAME_VALUES)),
    "several devices": Case(SHARDED_RIGHT, never=("not checked",)),
    "a captured step on several devices": Case(SHARDED_JIT, left="one of its schedules reads what another one writes"),
    "the first step of an optimizer": Case(FIRST_STEP, right=(), settings={"TRAINING": "1"}),
    "shards are all-reduced": Case(ALL_REDUCED, never=("not checked",)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_right_and_what_is_wrong(name: str, release: str, tree: Path, tmp_path: Path) -> None:
    case = CASES[name]
    done = check(tree, tmp_path, case.text, **case.settings)
    is_wrong = release in case.wrong_on
    assert done.returncode == int(is_wrong), done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    for words in case.found:
        assert (words in said) == is_wrong, said
    if not is_wrong and "all right" not in said:
        reasons = re.findall(r"none wrong; \d+ not compared: \d+ [a-z ]+ \((.*?)\) compared with", said)
        assert [reason.startswith(case.left) for reason in reasons] == [bool(case.left)], said
    for words in case.right:
        assert (words in said) != is_wrong, said
    assert not any(words in said for words in case.never), said


# *** what only some releases do

REPLAYED = """
from tinygrad import Tensor, TinyJit

@TinyJit
def double(x):
  return (x * 2).realize()

for i in range(4):
  double(Tensor([float(i)]).realize())
"""


def test_replays_are_compared(release: str, tree: Path, tmp_path: Path) -> None:
    """From 0.13 on the call that is captured runs as a replay."""
    done = check(tree, tmp_path, REPLAYED)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    counts = "6 outputs, 2 replays" if release == "0.12.0" else "5 outputs, 3 replays"
    assert f"{counts}, all right" in text


# a product that a rewrite makes a sum of, on each of two devices, between right values; then all-reduced
SHARDED = """from tinygrad import Tensor, dtypes
from tinygrad.schedule import rangeify
from tinygrad.uop.ops import Ops, PatternMatcher, UPat
where = ("CPU:0", "CPU:1")
a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [1.0, 1.0, 2.0]]).shard(where, axis=0).realize()
def change(x, c):
  return x + c if c.arg == 5.0 and dtypes.is_float(x.dtype) else None
rangeify.symbolic = PatternMatcher([(UPat(Ops.MUL, src=[UPat.var("x"), UPat.cvar("c")]), change)]) + rangeify.symbolic
right = (a + 1).sum(1, keepdim=True).contiguous()
wrong = (a - right * 5).contiguous()
(wrong + right).sum().realize()
"""


def test_the_first_wrong_buffer_on_several_devices_is_named(release: str, tree: Path, tmp_path: Path) -> None:
    done = check(tree, tmp_path, SHARDED)
    assert done.returncode == 1, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert re.search(r"first wrong buffer: \w+ \d+ \(2, 2, 3\) float, written by \S+ #1", said), said
    assert "[snippet.py:10]" in said
    # from 0.13 on one call runs a kernel on all devices
    told = "the kernel as scheduled computes the same wrong values" in said
    assert told == (release == "0.12.0")


# *** processes that die

DIES = """
from tinygrad import Tensor
(Tensor([1.0, 2.0]) + 1).realize()
(Tensor([4.0]) * 3).realize()
"""
EXITS = "import os\nos._exit(3)\n"
# every launch from there on is of a kernel that writes outside its memory
FAULTS = """
import ctypes
from tinygrad.runtime.ops_cpu import CPUProgram
three = Tensor([[3.0]]).realize()
CPUProgram.__call__ = lambda *arguments, **options: ctypes.string_at(0)
(three * 3).realize()
"""


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (EXITS, "ended the process with status 3"),
        (FAULTS, "was killed by SIGSEGV while launch 0 of its last schedule ran, kernel E"),
    ],
    ids=["exits", "faults"],
)
def test_what_ran_before_a_process_dies_is_compared(ends: str, words: str, tree: Path, tmp_path: Path) -> None:
    done = check(tree, tmp_path, DIES + ends)
    assert done.returncode == 4
    said = "outputs compared, none wrong, until the snippet failed"
    if ends == FAULTS:
        said = f"of 4 {said}; 1 not compared: 1 output"
    assert said in done.stdout, done.stdout + done.stderr
    assert f"vmapdbg: snippet.py {words}" in done.stderr


# more memory than there is
TOO_LARGE = "(Tensor([1.0, 2.0]).pad((0, 1 << 45)) + 1).realize()"


def test_the_kernel_whose_launch_raises_is_named(tree: Path, tmp_path: Path) -> None:
    done = check(tree, tmp_path, f"from tinygrad import Tensor\n{TOO_LARGE}\n")
    assert done.returncode == 3
    assert "failed: OSError: [Errno 12] Cannot allocate memory" in done.stdout
    assert "in kernel E_" in done.stdout


def test_a_launch_that_raised_is_not_what_the_process_died_in(tree: Path, tmp_path: Path) -> None:
    lines = ["import ctypes", "from tinygrad import Tensor", "try:", f"    {TOO_LARGE}", "except OSError:"]
    done = run_snippet(tree, tmp_path, "\n".join([*lines, "    ctypes.string_at(0)", ""]), "show", "--json", DEV="CPU")
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["message"] == "snippet.py was killed by SIGSEGV"
