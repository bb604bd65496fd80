"""Reads and writes in a wrong order, and overwritten inputs, on each release as it is: `check` proves them, and `lint`
finds them without a run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from release_trees import run_snippet

from vmapdbg.child.capture.order import find_writes_before

FOUND = Path(__file__).parent.parent / "found" / "programs"
PROGRAMS = ("reader_after_assign", "index_after_assign", "gather_after_assign", "detach_overwrites")
SCALAR = "less_itself_overwrites"
# refused as a cycle before 0.14
TWO = "reader_of_two_buffers_after_assign"

FOUND_BY_CHECK = {"0.12.0": ["VD209", "VD209", "VD209", "VD201", "VD208", "VD208"], "0.14.0": ["VD209"]}
FOUND_BY_LINT = {"0.12.0": ["VD109"] * 3 + ["VD110"] * 2, "0.14.0": ["VD109"]}

RIGHT = """
from tinygrad import Tensor
x = Tensor([[1.0], [2.0]]).realize()
less = (x - x.max(0, keepdim=True)).contiguous()
less.realize()
x.assign(x * 2)
after = x + 1
Tensor.realize(x, after)
# other elements of the buffer that is read
y = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
first = y[:2] * 3
part = y[2:].assign(y[2:] * 5)
Tensor.realize(part, first)
if hasattr(Tensor, "invalids"):
    z = Tensor.invalids(10, dtype="int").realize()
    z[2:5] = 2
    z.realize()
counts = [Tensor.rand(3) for _ in range(3)]
Tensor.realize(*counts)
from tinygrad.uop import Ops
# before 0.14 it is refused
if hasattr(Ops, "UNSHARD"):
  copied = Tensor.ones((1,), dtype="float", device=("CPU", "CPU:1"))
  copied.to_("CPU")
  copied *= 0.5
  copied.realize()
"""
LIVE = """
from tinygrad import Tensor
from tinygrad.uop.ops import buffers
kept = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
gone = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
other = Tensor([5.0, 6.0, 7.0, 8.0]).realize()
buffers[other.uop.base] = buffers[kept.uop.base]
del gone
other.assign(other * 10)
other.realize()
"""


LOST = """
from tinygrad import Tensor
x = Tensor([1.0, 2.0, 3.0]).realize()
x.bitcast("uint").assign(Tensor([0, 0, 0], dtype="uint"))
(x + 1).realize()
y = Tensor.ones(4).contiguous().realize()
y[1:3].assign(Tensor([5.0, 6.0]))
print((x + 1).tolist(), (y + 1).tolist())
"""
FOUND_LOST = {"0.12.0": [("VD206", "snippet.py:4"), ("VD206", "snippet.py:7")], "0.13.0": [("VD206", "snippet.py:4")]}

KEPT = """
from tinygrad import Tensor
x = Tensor([1.0, 2.0, 3.0]).realize()
held = x[1:].assign(Tensor([5.0, 6.0]))
(x + 1).realize()
held.realize()
y = Tensor.ones(4).contiguous().realize()
y.assign(y + 1)
z = y * 2
y.realize()
z.realize()
"""

STALE = """
from tinygrad import Tensor
t = Tensor([1.0, 2.0, 3.0]).realize()
r = t * 2
t.assign(t + 10)
t.realize()
print("#2.0", r.tolist())
print("#13.0", (r + t).tolist())
new = t * 2
print(new.tolist())
print("#24.0", (r + new).tolist())
"""
PARTS = """
from tinygrad import Tensor
t = Tensor.zeros(6).contiguous().realize()
none = t.sum()
t[:3].assign(Tensor.ones(3))
one = t.sum()
t[3:].assign(Tensor.full((3,), 2.0))
print("#0.0", none.item())
print("#3.0", one.item())
print("#9.0", t.sum().item())
"""
CROSSED = """
from tinygrad import Tensor
a, b = Tensor([1.0, 2.0]).realize(), Tensor([4.0, 5.0]).realize()
new_a, new_b = a + b, a * 2
a.assign(new_a)
b.assign(new_b)
print(a.tolist())
print("#2.0", b.tolist())
"""
AGAIN = """
from tinygrad import Tensor
w = Tensor([1.0, 2.0]).realize()
for i in range(3):
  loss = (w * w).sum()
  w.assign(w * 0.5).realize()
print("#0.3125", loss.item())
"""
# made before a write, and read by a later write
WITHIN = """
from tinygrad import Tensor
t = Tensor([1.0, 2.0]).realize()
old = t * 2 + 1
t.assign(t * 2 + 1)
new = t * 2 + 1
t.assign(old + old.sum())
print(new.tolist())
print("#11.0", t.tolist())
"""
# on several devices: each has all of the tensor, or a part of it
SHARDED = """
from tinygrad import Tensor
def change(axis):
  t = Tensor([1.0, 2.0, 3.0, 4.0]).shard(("CPU", "CPU:1"), axis).realize()
  r = t * 2
  t.assign(t + 10)
  return t.realize(), r
print("#2.0", (change(None)[1] + 0).tolist())
new, old = change(0)
print("#2.0", old.tolist())
print(new.tolist(), (new * 2).tolist())
"""
# gradients are made of what the value was made of
GRADIENT = """
from tinygrad import Tensor
w = Tensor([1.0, 2.0]).realize()
v = w + 0
loss = (v * v).sum()
w.assign(w * 0.5).realize()
print("#2.0", loss.gradient(v)[0].tolist())
print("#3.0", (loss.gradient(v)[0] + 1).tolist())
v = w + 0
print((v * v).sum().gradient(v)[0].tolist())
"""
# the same with what is read before it is overwritten
PENDING = """
from tinygrad import Tensor, Variable
def half_done():
  t = Tensor([1.0, 2.0, 3.0]).realize()
  r = t * 2
  t.assign(t + 10)
  return r
print(half_done().tolist())
t = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
t.assign(t + 1)
print((t.pad(((0, 0), (0, 3)))[:, 2:] + 5).tolist(), t.tolist())
w = Tensor([1.0, 2.0]).realize()
for i in range(3):
  loss = (w * w).sum()
  Tensor.realize(w.assign(w * 0.5), loss)
  old = (w + 1).realize() + loss
  print(loss.item(), old.tolist())
x, y, n = Tensor([1.0, 2.0, 3.0]).realize(), Tensor([4.0, 5.0, 6.0]).realize(), Variable("n", 1, 3)
x.assign(y[:n.bind(1)].sum() + y)
both = y[:n.bind(3)].sum() + x
print(x.tolist(), both.tolist())
"""
# the lines of stale readers; on 0.12.0 no graph has a write to a part of a tensor, and these writes are lost
STALE_LINES = {
    "STALE": (STALE, {}, {"7", "8", "11"}),
    "PARTS": (PARTS, {"0.12.0": {"5", "7"}}, {"8", "9"}),
    "CROSSED": (CROSSED, {}, {"8"}),
    "AGAIN": (AGAIN, {}, {"7"}),
    "WITHIN": (WITHIN, {}, {"9"}),
    "SHARDED": (SHARDED, {}, {"8", "10"}),
    "GRADIENT": (GRADIENT, {}, {"7", "8"}),
    "PENDING": (PENDING, {}, set[str]()),
}

SEVERAL = """
from tinygrad import Tensor
t = Tensor([1.0, 2.0, 3.0]).realize()
for i in range(3):
  t.assign(t * 2 + i)
print((t + 1).tolist(), t.tolist())
x = Tensor.zeros(4).contiguous().realize()
x[0], x[1] = 1.0, 2.0
x[0:2] = x[0:2] * 3
(x + 1).realize()
print(x.tolist())
Tensor.manual_seed(0)
print((Tensor.rand(3) + Tensor.rand(3)).shape)
"""
# the second write is gone when `v` is realized: 0.13.0 prints 1.0
WAITS = """
from tinygrad import Tensor
u = Tensor.zeros(4).contiguous().realize()
u.assign(u + 1)
v = u * 2
u.assign(u + 1)
print(v.tolist(), u.tolist())
"""

# two pending writes are equal
TWICE = """
from tinygrad import Tensor
t, u = Tensor([1.0, 2.0]).realize(), Tensor([5.0, 6.0]).realize()
t.assign(u * 2)
v = t + 1
t.assign(t + 1)
t.assign(u * 2)
w = t + u
t.assign(t + 1)
print(v.tolist(), w.tolist())
print(t.tolist())
"""
# each device has a column
WAITS_SHARDED = WAITS.replace("zeros(4).contiguous()", "zeros(2, 2).contiguous().shard(('CPU', 'CPU:1'), 1)")
DROPPED = {
    "WAITS": (WAITS, 6, "at [0]: 1.0, should be 2.0"),
    "WAITS_SHARDED": (WAITS_SHARDED, 6, "at [0, 0]: 1.0, should be 2.0"),
    "TWICE": (TWICE, 9, "at [0]: 10.0, should be 11.0"),
}

# 0.13.0 drops the second write, and the third replaces what it left
REPLACED = """
from tinygrad import Tensor
u = Tensor([3.0, 1.0]).realize()
u.assign(u * 0.5)
v = u * 0.5
u.assign(u * 0.5)
u.assign(v + 1)
print(v.tolist(), u.tolist())
"""

# from 0.13 on `old` gets the value of `new`, which has the same graph
EQUAL = """
from tinygrad import Tensor
t = Tensor([1.0, 2.0]).realize()
old = t * 2
t.assign(t + 3).realize()
new = (t * 2).realize()
print(old.tolist())
"""
# before 0.14 a schedule with one pending write loses others
CHAIN = """
from tinygrad import Tensor
c = Tensor([1.0]).realize()
c.assign(c + 1)
a = c * 10
c.assign(c + 1)
b = c * 10
c.assign(c + 1)
d = c * 10
print(a.item())
print(b.item())
print(d.item())
"""
FOUND_CHAIN = {
    "0.12.0": [("VD206", "8"), ("VD209", "12")],
    "0.13.0": [("VD206", "8"), ("VD209", "11"), ("VD209", "12")],
    "0.14.0": [],
}

# random numbers that are drawn lazily: each release mixes up others. Many, so that some are close to the tolerance
DRAWS = """
from tinygrad import Tensor
Tensor.manual_seed(1)
Tensor.rand(1).realize()
first, second, third = Tensor.randn(2000), Tensor.randn(2000), Tensor.randn(2000)
first.realize()
second.realize()
third.realize()
fourth, fifth = Tensor.randn(2000), Tensor.randn(2000)
fifth.realize()
fourth.realize()
"""
OTHER_DRAWS = {"0.12.0": {"8"}, "0.13.0": {"7", "11"}, "0.14.0": {"11"}}

CUT = """
from tinygrad import Tensor
w = Tensor([1.0, 2.0]).realize()
v = Tensor([1.0, 2.0]).realize()
over = Tensor.zeros(2).contiguous().realize()
loss = (w.clone() * 3 + over.assign(v * 2)).sum()
print([gradient.tolist() for gradient in loss.gradient(w, v)])
"""


def find_codes(command: list[str], tree: Path, folder: Path, text: str) -> list[dict[str, Any]]:
    done = run_snippet(tree, folder, text, *command, DEV="CPU")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["findings"]


def write_programs(release: str) -> str:
    names = [*PROGRAMS, SCALAR]
    if release == "0.14.0":
        names.append(TWO)
    return "\n".join((FOUND / f"{name}.py").read_text(encoding="utf-8") for name in names)


def test_check_proves_the_fault(release: str, tree: Path, tmp_path: Path) -> None:
    findings = find_codes(["check", "--json"], tree, tmp_path, write_programs(release))
    assert [one["code"] for one in findings] == FOUND_BY_CHECK.get(release, [])
    for one in findings:
        if one["code"] == "VD209":
            assert "has written it, and should before" in one["message"]
        if one["code"] == "VD208":
            assert "which nothing assigns to" in one["message"]
            assert one["message"].endswith(" there")
            assert one["kernel"].startswith("E")


def test_lint_needs_no_run(release: str, tree: Path, tmp_path: Path) -> None:
    findings = find_codes(["lint", "--format", "json"], tree, tmp_path, write_programs(release))
    found = [one for one in findings if one["code"] in {"VD109", "VD110"}]
    assert [one["code"] for one in found] == FOUND_BY_LINT.get(release, [])


def test_a_live_tensor_that_changes(tree: Path, tmp_path: Path) -> None:
    """Two tensors are made to have the same memory."""
    (found,) = find_codes(["check", "--json"], tree, tmp_path, LIVE)
    assert (found["code"], found["line"]) == ("VD210", "snippet.py:9")
    assert "of a tensor that the graph does not have, of schedule" in found["message"]
    assert "the first at [0]: 10.0, should be 1.0" in found["message"]


def test_a_write_that_gets_lost(release: str, tree: Path, tmp_path: Path) -> None:
    """From 0.13 on all views of a buffer come after a write to one view; through a bitcast from 0.14 on."""
    findings = find_codes(["check", "--json"], tree, tmp_path, LOST)
    assert [(one["code"], one["line"]) for one in findings] == FOUND_LOST.get(release, [])
    assert find_codes(["check", "--json"], tree, tmp_path, KEPT) == []


def test_several_writes_to_a_buffer_are_compared(tree: Path, tmp_path: Path) -> None:
    done = run_snippet(tree, tmp_path, SEVERAL, "check", "--strict", DEV="CPU")
    assert done.returncode == 0, done.stdout
    assert "all right" in done.stdout


@pytest.mark.parametrize("name", DROPPED)
def test_a_write_that_a_schedule_drops(name: str, release: str, tree: Path, tmp_path: Path) -> None:
    text, line, values = DROPPED[name]
    found = find_codes(["check", "--json"], tree, tmp_path, text)
    if release != "0.13.0":
        assert found == []
        return
    assert [(one["code"], one["line"]) for one in found] == [("VD206", f"snippet.py:{line}")]
    assert f"the first {values}" in found[0]["message"]
    assert "after it no tensor has it: the write is lost" in found[0]["message"]


def test_a_dropped_write_that_a_later_one_replaces(release: str, tree: Path, tmp_path: Path) -> None:
    if release == "0.14.0":
        pytest.skip("0.14.0 refuses it as a cycle")
    assert find_codes(["check", "--json"], tree, tmp_path, REPLACED) == []


def test_a_tensor_gets_the_value_of_an_equal_graph(release: str, tree: Path, tmp_path: Path) -> None:
    (found,) = find_codes(["check", "--json"], tree, tmp_path, EQUAL)
    is_early = release == "0.12.0"
    assert (found["code"], found["line"]) == ("VD209", "snippet.py:7" if is_early else "snippet.py:6")
    assert "the first at [0]: 8.0, should be 2.0; a stale reader: it was made before the write" in found["message"]
    assert ("buffer 0, of a tensor that gets its value here, of schedule" in found["message"]) is not is_early


def test_several_assigns_that_single_schedules_take(release: str, tree: Path, tmp_path: Path) -> None:
    found = find_codes(["check", "--json"], tree, tmp_path, CHAIN)
    assert [(one["code"], one["line"].split(":")[1]) for one in found] == FOUND_CHAIN[release]


@pytest.mark.parametrize("name", STALE_LINES)
def test_a_tensor_means_what_memory_held_when_it_was_made(name: str, release: str, tree: Path, tmp_path: Path) -> None:
    text, by_release, lines = STALE_LINES[name]
    is_lost = release in by_release
    findings = find_codes(["check", "--json"], tree, tmp_path, text)
    assert {one["line"].split(":")[1] for one in findings} == by_release.get(release, lines)
    for one in findings:
        assert one["code"] == ("VD206" if is_lost else "VD209")
        if not is_lost:
            right = text.splitlines()[int(one["line"].split(":")[1]) - 1].split("#")[1].split('"')[0]
            assert f"should be {right}" in one["message"]
            assert "a stale reader: it was made before the write" in one["message"]
            assert "tinygrad documents this: test_lazy_sum_between_writes" in one["message"]


def test_lazy_random_numbers_of_another_draw(release: str, tree: Path, tmp_path: Path) -> None:
    """Else random weights that are equal look like a wrong kernel."""
    findings = find_codes(["check", "--json"], tree, tmp_path, DRAWS)
    stale = [one for one in findings if one["code"] == "VD209"]
    assert {one["line"].split(":")[1] for one in stale} == OTHER_DRAWS[release]
    for one in stale:
        assert "it gets the random numbers of another draw, because their counter holds another" in one["message"]
    # the counter itself
    assert {one["code"] for one in findings if one not in stale} <= {"VD206"}


def test_a_gradient_goes_through_a_write_from_0_13_on(release: str, tree: Path, tmp_path: Path) -> None:
    text = CUT
    if release == "0.12.0":
        # else it raises
        text = CUT.replace("gradient(w, v)", "gradient(w, v, materialize_grads=True)")
    findings = find_codes(["check", "--json"], tree, tmp_path, text)
    assert [one["code"] for one in findings] == (["VD207", "VD207"] if release == "0.12.0" else [])


def test_right_programs_have_no_finding(tree: Path, tmp_path: Path) -> None:
    assert find_codes(["check", "--json"], tree, tmp_path, RIGHT) == []
    findings = find_codes(["lint", "--format", "json"], tree, tmp_path, RIGHT)
    assert [one for one in findings if one["code"] in {"VD109", "VD110"}] == []


class Node:
    """A UOp with an op and sources only."""

    def __init__(self, op: str, *src: Node) -> None:
        self.op, self.src = SimpleNamespace(name=op), src


def test_many_writes_in_place_are_found_in_one_walk() -> None:
    """Each write comes after the write before it by its view and by its target: 2**200 ways lead to the first one."""
    state, writes = Node("BUFFER"), []
    for _ in range(200):
        writes.append(Node("STORE", state, Node("CONST")))
        state = Node("AFTER", state, writes[-1])
    assert find_writes_before(state) == set(writes)
