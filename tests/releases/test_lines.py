"""A node has the line of the user's code that asks for it, also where tinygrad puts it in by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from release_trees import HERE, NULL, find_tree, run_on
from tool import STEPS, run_tool, share_without_line

from vmapdbg.model.capture import Capture
from vmapdbg.model.ops import MOVEMENT
from vmapdbg.model.store import parse_capture

METHODS = """\
from tinygrad import Tensor, nn
x, w = Tensor.empty(8, 16), Tensor.empty(16, 32)
h = (x @ w).relu()
s = h.softmax(1)
t = nn.Linear(32, 8)(s).gelu()
c = Tensor.empty(1, 1, 8, 8).conv2d(Tensor.empty(4, 1, 3, 3)).flatten()
loss = (t * t).sum() + c.mean()
(g,) = loss.gradient(w)
"""
SHARDED = """\
from tinygrad import Device, Tensor
devices = tuple(f"{Device.DEFAULT}:{number}" for number in range(2))
x = Tensor.empty(8, 16).shard(devices, axis=0)
w = Tensor.empty(16, 4).shard(devices)
product = x @ w
out = product.sum(0)
"""


def load(release: str, text: str, folder: Path) -> Capture:
    program = folder / "program.py"
    program.write_text(text, encoding="utf-8")
    captures = json.loads(run_on(release, HERE / "observed.py", "c", program, **NULL))
    return parse_capture(captures["program"], "program")


def count_lines(capture: Capture, *ops: str) -> dict[int, int]:
    """Returns how many nodes of these ops each line has."""
    found: dict[int, int] = {}
    for node in (node for schedule in capture.schedules for node in schedule.nodes):
        if node.op in ops:
            assert node.line is not None, node
            number = int(node.line.rpartition(":")[2])
            found[number] = found.get(number, 0) + 1
    return found


def test_a_gradient_has_the_line_of_its_forward_op(release: str, tmp_path: Path) -> None:
    capture = load(release, METHODS, tmp_path)
    everything = {node.op for schedule in capture.schedules for node in schedule.nodes}
    lines = count_lines(capture, *everything)
    # nothing is the gradient's own, not even what adds gradients up
    assert 8 not in lines
    reduces = count_lines(capture, "REDUCE", "REDUCE_AXIS")
    # the sums of the product and of its gradient; the sums of softmax, forward and backward
    assert reduces[3] == 2
    assert reduces[4] >= 3


def test_what_runs_on_several_devices_has_its_line(release: str, tmp_path: Path) -> None:
    capture = load(release, SHARDED, tmp_path)
    assert count_lines(capture, "REDUCE", "REDUCE_AXIS") == {5: 1, 6: 1}
    assert not count_lines(capture, "COPY").keys() - {3, 4, 6}
    for kernel in (kernel for schedule in capture.schedules for kernel in schedule.kernels):
        assert kernel.lines


def test_a_node_has_the_method_that_the_user_called(release: str, tmp_path: Path) -> None:
    """The outermost one: softmax, not the exp2 in it; of the gradient, the method that it is the gradient of."""
    capture = load(release, METHODS, tmp_path)
    found: dict[int, set[str | None]] = {}
    for node in (node for schedule in capture.schedules for node in schedule.nodes):
        if node.op not in MOVEMENT and node.op not in ("BUFFER", "PARAM", "SINK", "STORE", "AFTER"):
            assert node.line is not None, node
            found.setdefault(int(node.line.rpartition(":")[2]), set()).add(node.method)
    assert not any(None in methods for methods in found.values()), found
    assert found[3] == {"__matmul__", "relu"}
    assert found[4] == {"softmax"}
    assert {"linear", "gelu"} <= found[5]
    assert "conv2d" in found[6]
    assert {"__mul__", "sum", "mean"} <= found[7]


@pytest.mark.parametrize("step", STEPS, ids=lambda path: path.stem)
def test_hardly_an_op_has_no_line(release: str, step: Path, tmp_path: Path) -> None:
    """Else the longest kernels of a program may have no line, and nothing leads from them to the user's code."""
    done = run_tool("show", str(step), "--tinygrad", str(find_tree(release)), "--json", cwd=tmp_path, TRAINING="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert share_without_line(json.loads(done.stdout)) <= 0.02
