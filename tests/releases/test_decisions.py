"""`bisect --decisions` on real releases: PCONTIG=2 makes 0.14.0 compute wrong values on the CPU, and a realize point
mends them; 0.13.0 is right as it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from release_trees import find_tree
from tool import run_tool

from vmapdbg.commands.shared.children import run_many
from vmapdbg.install.job import Choice, Job

SOFTMAX = """import numpy as np
from tinygrad import Tensor

x = Tensor((np.arange(128).reshape(8, 16) / 16).astype(np.float32)).realize()
y = x.softmax().realize()
"""
LAYERNORM = """import numpy as np
from tinygrad import Tensor

x = Tensor((np.arange(128).reshape(8, 16) % 7 / 7).astype(np.float32)).realize()
y = x.layernorm().realize()
"""


NUMBERS = np.arange(128).reshape(8, 16)
RAISED, SCALED = np.exp(NUMBERS / 16), NUMBERS % 7 / 7
# each program, and the values that it should compute
RIGHT = {
    "softmax": (SOFTMAX, RAISED / RAISED.sum(1, keepdims=True)),
    "layernorm": (LAYERNORM, (SCALED - SCALED.mean(1, keepdims=True)) / np.sqrt(SCALED.var(1, keepdims=True) + 1e-5)),
}


def search(snippet: Path, release: str, *options: str, **settings: str) -> tuple[int, Any]:
    """Returns the exit code of `bisect --decisions --json`, and what it printed."""
    options = ("--decisions", "--json", "--tinygrad", str(find_tree(release)), *options)
    done = run_tool("bisect", snippet.name, *options, cwd=snippet.parent, **settings)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def write_snippet(folder: Path, name: str) -> Path:
    file = folder / f"{name}.py"
    file.write_text(RIGHT[name][0], encoding="utf-8")
    return file


@pytest.mark.parametrize("name", RIGHT)
def test_each_decision_that_is_found_makes_it_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippet = write_snippet(tmp_path, name)
    code, found = search(snippet, "0.14.0", PCONTIG="2")
    assert (code, found["complete"], len(found["found"][0]["decisions"])) == (1, True, 1)
    assert found["given"] != found["right"] == found["found"][0]["outcome"]
    decided = [decision for trial in found["found"] for decision in trial["decisions"]]
    choices = [Choice(one["schedule"], one["node"], one["op"]) for one in decided]
    # its changes are printed with it
    changed = {change["after"]["id"]: change for change in found["changes"]["schedules"][1]["nodes"]}
    assert changed[decided[0]["node"]]["after"]["realized"]["reason"] == "forced"
    assert decided[0]["line"] == f"{name}.py:5"

    # not by the tool's own comparison
    monkeypatch.setenv("PCONTIG", "2")
    job = Job(str(snippet), patches=None, tree=str(find_tree("0.14.0")), values=True)
    wrong, *mended = run_many([job, *(replace(job, choices=(choice,)) for choice in choices)])
    right = RIGHT[name][1]
    assert not np.allclose(read_values(wrong.capture), right, atol=1e-4)
    for choice, run in zip(choices, mended, strict=True):
        assert np.allclose(read_values(run.capture), right, atol=1e-4), choice
        check_told(run.capture, choice)


def read_values(capture: Any) -> Any:
    (output,) = capture.schedules[-1].outputs
    return np.array(output.sample).reshape(output.shape)


def check_told(capture: Any, choice: Choice) -> None:
    """The capture says of the node, and of its buffer, that they were forced."""
    schedule = capture.schedules[choice.schedule]
    assert schedule.forced == (choice.node,)
    node = next(node for node in schedule.nodes if node.id == choice.node)
    assert [reason.rule for reason in node.realized.reasons] == ["forced"]
    (made,) = [made for made in schedule.bufferizes if made.node == choice.node]
    assert (made.outcome, made.addrspace, made.decided.rule) == ("kept", "GLOBAL", "forced")
    assert not [n for n in schedule.nodes if n.realized and n.realized.reason == "forced" and n.id != choice.node]


def test_another_release_gives_the_right_outcome(tmp_path: Path) -> None:
    baseline = f"--baseline={find_tree('0.13.0')}"
    code, found = search(write_snippet(tmp_path, "softmax"), "0.14.0", baseline, PCONTIG="2")
    assert (code, found["reference"], len(found["found"][0]["decisions"])) == (1, baseline, 1)


@pytest.mark.parametrize("release", ["0.12.0", "0.13.0"])
def test_there_is_nothing_to_mend(release: str, tmp_path: Path) -> None:
    code, found = search(write_snippet(tmp_path, "softmax"), release, PCONTIG="2")
    assert (code, found["found"]) == (0, [])
    assert found["given"] == found["right"]


def test_a_realize_point_is_let_go(release: str, tmp_path: Path) -> None:
    """A large sum is done in two steps, with a CONTIGUOUS between them that tinygrad puts in."""
    snippet = tmp_path / "big.py"
    snippet.write_text("from tinygrad import Tensor\ny = Tensor.empty(1 << 20).sum()\n", encoding="utf-8")
    code, found = search(snippet, release, "--by", "1 kernel")
    assert (code, found["reference"], found["right"]) == (1, None, None)
    (trial,) = found["found"]
    (decided,) = trial["decisions"]
    assert (decided["op"], decided["realized"], decided["line"]) == ("CONTIGUOUS", False, "big.py:2")
    assert trial["kernels"] == 1


def test_every_node_can_be_forced(release: str, tmp_path: Path) -> None:
    """What has no buffer of its own, together, on programs of all sorts: it runs, and the values are the same."""
    snippet = tmp_path / "many.py"
    lines = [
        "from tinygrad import Tensor",
        "x = Tensor([[float(i * j % 5) for j in range(8)] for i in range(4)]).realize()",
        "a = x.cumsum(1).realize()",
        "b = x.argmax(1).realize()",
        "c = (x.softmax(1) @ x.transpose()).layernorm().realize()",
        "d = (Tensor.arange(8).reshape(1, 8) < 3).where(x, x.pad(((0, 0), (1, 1)))[:, 2:]).realize()",
        "e = Tensor.stack(x.sum(0), x.max(0))[Tensor([0, 1])].realize()",
        "f = x[1:3].cast('half').float().exp().log().realize()",
    ]
    snippet.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, found = search(snippet, release)
    assert (code, found["given"]) == (0, found["right"])
    assert found["candidates"] > 20
    forced = next(trial for trial in found["tried"] if trial["decisions"])
    assert len(forced["decisions"]) == found["candidates"]
