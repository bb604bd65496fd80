"""What a diff of two releases shows: what the scheduler did otherwise, and nothing that is only written otherwise."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from release_trees import HERE, NULL, PROGRAMS, ROOT, find_tree, load_observed
from tool import run_tool

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import CaptureDiff, ScheduleDiff

NAMES = [p.stem for p in PROGRAMS]
PAIRS = (("0.12.0", "0.13.0"), ("0.13.0", "0.14.0"), ("0.12.0", "0.14.0"))

# The buffers that only one side has, by the ops whose values they hold: what the scheduler did otherwise. 0.13.0 stores
# the reciprocal of a softmax's sum, the others the sum; 0.14.0 stores the root of a norm, the others its reciprocal.
SUM_FOR_RECIPROCAL = (["REDUCE_AXIS"], ["RECIPROCAL"])
ROOT_FOR_RECIPROCAL = (["RECIPROCAL"], ["SQRT"])
MOVED = {
    ("0.12.0", "0.13.0"): {
        "attention": SUM_FOR_RECIPROCAL,
        "block": SUM_FOR_RECIPROCAL,
        # the gradient of the reciprocal is taken before the broadcast
        "block_backward": (["REDUCE_AXIS", "REDUCE_AXIS"], ["MUL"]),
        "softmax": SUM_FOR_RECIPROCAL,
    },
    ("0.13.0", "0.14.0"): {
        "attention": (["RECIPROCAL"], ["REDUCE"]),
        "batchnorm": ROOT_FOR_RECIPROCAL,
        "block": (["RECIPROCAL"] * 3, ["REDUCE", "SQRT", "SQRT"]),
        # gradients of one weight are summed up one by one, and added afterwards
        "block_backward": (["RECIPROCAL", "RESHAPE"], ["REDUCE", "RESHAPE", "SQRT"]),
        "layernorm": ROOT_FOR_RECIPROCAL,
        "rmsnorm": ROOT_FOR_RECIPROCAL,
        "softmax": (["RECIPROCAL"], ["REDUCE"]),
        # a stack is an op of its own, and no sum of padded values any more: it needs no buffer
        "stack_index": (["ADD"], []),
    },
    ("0.12.0", "0.14.0"): {
        "batchnorm": ROOT_FOR_RECIPROCAL,
        "block": (["RECIPROCAL"] * 2, ["SQRT"] * 2),
        "block_backward": None,
        "layernorm": ROOT_FOR_RECIPROCAL,
        "rmsnorm": ROOT_FOR_RECIPROCAL,
        "stack_index": (["ADD"], []),
    },
}
# programs whose graphs differ: nodes that only one side has
OTHER_GRAPH = {"block_backward", "stack_index"}
# from 0.13.0 on a value and its contiguous transpose are two buffers
OTHER_COUNT = {"shared_sum", "stack_index"}


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


def compare(pair: tuple[str, str], name: str) -> tuple[CaptureDiff, ScheduleDiff]:
    before, after = (load_observed(version, name) for version in pair)
    diff = diff_captures(before, after)
    (schedule,) = diff.schedules
    assert schedule.is_pair
    return diff, schedule


def list_moved(schedule: ScheduleDiff) -> tuple[list[str], list[str]]:
    only = {"only-before": list[str](), "only-after": list[str]()}
    for item in schedule.bufferizes:
        made = item.before or item.after
        if item.status in only and made is not None and made.outcome == "kept":
            only[item.status].append(item.op)
    return sorted(only["only-before"]), sorted(only["only-after"])


@pytest.mark.parametrize("name", NAMES)
def test_only_what_the_scheduler_did_otherwise_shows(pair: tuple[str, str], name: str) -> None:
    """If each kernel has its twin with the same source, no node and no buffer shows as changed either. A kernel is
    alone, or fused, if the numbers of kernels differ and one sum became several."""
    diff, schedule = compare(pair, name)
    moved = MOVED[pair].get(name, ([], []))
    assert moved is None or list_moved(schedule) == moved
    if all(item.status == "unchanged" for item in schedule.kernels):
        assert diff.is_empty, (schedule.nodes, schedule.nodes_only_before, schedule.nodes_only_after)
        assert all(item.status == "unchanged" for item in schedule.bufferizes)
    assert schedule.same_nodes
    if name not in OTHER_GRAPH:
        assert [node.op for node in (*schedule.nodes_only_before, *schedule.nodes_only_after)] == []
    if name not in OTHER_COUNT | {"block_backward"}:
        assert {item.status for item in schedule.kernels} <= {"unchanged", "changed"}


def test_most_programs_do_not_change_at_all() -> None:
    """Else the test before this one tests nothing."""
    same = {pair: {name for name in NAMES if compare(pair, name)[0].is_empty} for pair in PAIRS}
    both = {"bigsum", "cumsum", "times_sum"}
    assert same["0.12.0", "0.13.0"] >= both | {"argmax", "batchnorm", "layernorm", "rmsnorm"}
    assert same["0.13.0", "0.14.0"] >= both | {"shared_sum"}


def test_a_stack_without_a_buffer_shows() -> None:
    """0.14.0 has a kernel less: the diff must say so."""
    diff, schedule = compare(("0.13.0", "0.14.0"), "stack_index")
    assert not diff.is_empty
    assert len(schedule.kernels) == 2
    assert [item.status for item in schedule.kernels if not item.after] == ["only-before"]
    assert "STACK" in [node.op for node in schedule.nodes_only_after]


@pytest.mark.parametrize("name", ["softmax", "block"])
def test_each_side_keeps_its_own_names(name: str) -> None:
    _, schedule = compare(("0.12.0", "0.13.0"), name)
    (reduce,) = [item for item in schedule.nodes if item.before.op == "REDUCE_AXIS"]
    assert reduce.after.op == "REDUCE"
    assert (schedule.buffer_op_before, schedule.buffer_op_after) == ("BUFFERIZE", "STAGE")
    ops = {item.op for item in schedule.bufferizes if item.status == "only-before"}
    assert ops == {"REDUCE_AXIS"}


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_a_switch_on_one_side_shows(name: str) -> None:
    """PCONTIG=2 fuses: fewer kernels, in one release and from one to the next."""
    for before in ("0.12.0", "0.13.0"):
        diff = diff_captures(load_observed(before, name), load_observed("0.13.0", name, PCONTIG="2"))
        assert not diff.is_empty
        assert diff.after.totals.kernels < diff.before.totals.kernels


# *** a tree that somebody changed


def run_diff(program: Path, after: Path, before: Path, *options: str) -> subprocess.CompletedProcess[str]:
    sides = ("--tinygrad", str(after), f"--baseline={before}")
    return run_tool("diff", str(program), *sides, *options, cwd=ROOT, **NULL)


GRADIENTS = """
import numpy as np
from tinygrad import Tensor
rng = np.random.default_rng(0)
x, *weights = (Tensor(rng.standard_normal((32, 32)).astype(np.float32) * 0.1).realize() for _ in range(4))
q, k, v = (x @ weight for weight in weights)
y = ((q @ k.transpose(-1, -2)).softmax(-1) @ v).relu().sum()
y.backward()
Tensor.realize(y, *(weight.grad for weight in weights))
for weight in weights: weight.grad.numpy()
"""


def test_a_copy_of_a_gradient_is_not_compared_with_a_copy_of_a_weight(tmp_path: Path) -> None:
    """Their graphs are equal in the form of all releases; and a copy has the rounding of what it copies."""
    (tmp_path / "attention.py").write_text(GRADIENTS, encoding="utf-8")
    sides = ("--tinygrad", str(find_tree("0.14.0")), f"--baseline={find_tree('0.13.0')}")
    done = run_tool("diff", "attention.py", *sides, "--json", cwd=tmp_path)
    diff = json.loads(done.stdout)
    compared = [item for item in diff["schedules"] if item["outputs"]]
    assert len(compared) == 4 + 1 + 3
    assert {item["paired_by"] for item in compared} == {"line"}
    assert diff["values"] == "close"


def copy_tree(version: str, place: Path) -> Path:
    shutil.copytree(find_tree(version) / "tinygrad", place / "tinygrad", ignore=shutil.ignore_patterns("__pycache__"))
    return place


def make_relu_contiguous(tree: Path) -> None:
    (file,) = [p for p in (tree / "tinygrad").rglob("*.py") if "  def relu(self" in p.read_text(encoding="utf-8")]
    text = file.read_text(encoding="utf-8")
    whole, part = "return (self > 0).where(self, 0)", "return (self > 0).where(self, 0).contiguous()"
    assert text.count(whole) == 1
    file.write_text(text.replace(whole, part), encoding="utf-8")


@pytest.mark.parametrize("version", ["0.13.0", "0.14.0"])
def test_a_changed_tree_shows_its_change_alone(version: str, tmp_path: Path) -> None:
    program = tmp_path / "relu.py"
    program.write_text("from tinygrad import Tensor\nout = Tensor.empty(8, 8).relu().sqrt()\n", encoding="utf-8")
    changed = copy_tree(version, tmp_path / "changed")
    same = run_diff(program, changed, find_tree(version), "--exit-code")
    assert (same.returncode, same.stdout.partition(":")[0]) == (0, "no change"), same.stdout + same.stderr
    make_relu_contiguous(changed)
    shown = run_diff(program, changed, find_tree(version), "--json", "--exit-code")
    assert shown.returncode == 1, shown.stderr
    (schedule,) = json.loads(shown.stdout)["schedules"]
    # these releases make a store to an argument of it
    assert [item["after"]["op"] for item in schedule["nodes"] if "realized" in item["changed"]] == ["STORE"]
    assert schedule["nodes_only_before"] == schedule["nodes_only_after"] == []
    assert (schedule["totals_before"]["kernels"], schedule["totals_after"]["kernels"]) == (1, 2)


def test_the_command_names_both_sides() -> None:
    program = HERE / "programs" / "softmax.py"
    shown = run_diff(program, find_tree("0.14.0"), find_tree("0.13.0"), "--exit-code")
    assert shown.returncode == 1, shown.stderr
    assert "before  tinygrad 0.13.0, observed" in shown.stdout
    assert "after   tinygrad 0.14.0, observed" in shown.stdout
    assert "RECIPROCAL" in shown.stdout
