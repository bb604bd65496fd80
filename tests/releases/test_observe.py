"""What stock tinygrad decides is observed on each release, and observing changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from release_trees import HERE, NULL, PROGRAMS, ROOT, run_observed, run_on

NAMES = [p.stem for p in PROGRAMS]
KNOWN = {
    "output",
    "always",
    "source-of",
    "assign",
    "outer-reduce",
    "consumers-disagree",
    "ending-ranges",
}


def schedules(observed: Any, name: str) -> list[Any]:
    found = observed["programs"][name]["schedules"]
    assert found
    return found


def test_the_tree_is_the_one_that_is_observed(release: str, tree: Path, observed: Any) -> None:
    assert Path(observed["tinygrad"]).is_relative_to(tree)
    assert observed["missing"] == []


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_stock_to_the_key(release: str, stock: Any, observed: Any, name: str) -> None:
    assert observed["programs"][name]["keys"] == stock["programs"][name]["keys"] != []


@pytest.mark.parametrize("name", NAMES)
def test_every_realized_node_has_a_reason(release: str, observed: Any, name: str) -> None:
    for schedule in schedules(observed, name):
        assert schedule["realized"]
        for node in schedule["realized"]:
            assert node["id"] is not None
            for cause in node["causes"]:
                assert cause["word"] in KNOWN, (node, cause)
                assert cause["place"].startswith("indexing.py:")
                assert cause["text"]


@pytest.mark.parametrize("name", NAMES)
def test_reasons_have_their_operands(release: str, observed: Any, name: str) -> None:
    """Who asks for what, and where which range ends: without them the reason is only a word."""
    for schedule in schedules(observed, name):
        for cause in (cause for node in schedule["realized"] for cause in node["causes"]):
            if cause["rule"] == "consumers-disagree":
                assert isinstance(cause["axis"], int)
                assert len(cause["nodes"]) == len(set(cause["ranges"])) > 1
            if cause["rule"] == "ending-ranges":
                assert cause["ends"] == len(cause["nodes"]) == len(set(cause["ranges"])) > 0
            if cause["rule"] in {"source-of", "assigned-value"}:
                assert len(cause["nodes"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_buffer_has_a_verdict(release: str, observed: Any, name: str) -> None:
    for schedule in schedules(observed, name):
        for buffer in schedule["buffers"]:
            assert buffer["node"] is not None
            assert buffer["rule"] not in {"decided-at", "no-rule", "folded"}, buffer
            assert buffer["rule"] == "output" or buffer["file"].endswith("/rangeify.py")
            if buffer["rule"] == "many-buffers":
                assert buffer["numbers"]["buffers"] > buffer["numbers"]["limit"] == 3
            if buffer["rule"] in {"reduce-reads-buffer", "reduce-computed-again"}:
                assert buffer["numbers"]["reduces"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_has_the_node_it_stores(release: str, observed: Any, name: str) -> None:
    for schedule in schedules(observed, name):
        assert schedule["kernels"]
        assert all(kernel["node"] is not None for kernel in schedule["kernels"])
        kept = {buffer["node"] for buffer in schedule["buffers"] if buffer["kept"]}
        assert kept <= {kernel["node"] for kernel in schedule["kernels"]}


@pytest.mark.parametrize("name", NAMES)
def test_every_node_has_a_line(release: str, observed: Any, name: str) -> None:
    for schedule in schedules(observed, name):
        assert [node for node in schedule["nodes"] if node["line"] is None and node["op"] != "SINK"] == []


@pytest.mark.parametrize("name", NAMES)
def test_reasons_agree_with_the_overlay(name: str) -> None:
    """On 0.12.0 with the patches off. A node with two causes tells both, the overlay's one is among them."""
    observed = [n for s in run_observed("0.12.0", "observe")["programs"][name]["schedules"] for n in s["realized"]]
    left = [(n["op"], n["shape"], n["axes"], {c["word"] for c in n["causes"]}) for n in observed]
    assert sum(len(reasons) > 1 for *_, reasons in left) <= 2
    program = HERE / "programs" / f"{name}.py"
    command = [
        sys.executable,
        "-m",
        "vmapdbg",
        "show",
        str(program),
        "--patches",
        "none",
        "--json",
        "--schedule",
        "all",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    overlay = [n for s in json.loads(done.stdout)["schedules"] for n in s["nodes"] if n["realized"] is not None]
    assert len(overlay) == len(left)
    for node in overlay:
        realized = node["realized"]
        what = node["op"], node["shape"], sorted(realized["axes"])
        found = next((o for o in left if o[:3] == what and realized["reason"] in o[3]), None)
        assert found is not None, (what, realized, left)
        left.remove(found)


CACHED = """
from vmapdbg.child.listen.hooks import start
from vmapdbg.child.listen.releases import schedule_tensors
recorder = start()
from tinygrad import Tensor
from tinygrad.helpers import Context
for level in (0, 2):
    with Context(PCONTIG=level):
        x = Tensor.empty(4, 8)
        schedule_tensors([x.softmax()])
first, second = recorder.schedules
print(first.cached, first.not_in_key, second.cached, second.not_in_key, second.passed is first.passed)
"""


def test_a_cached_schedule_says_what_its_key_has_not(release: str, tree: Path, tmp_path: Path) -> None:
    """Upstream's own TestPcontig passes only because PCONTIG is not in the key."""
    script = tmp_path / "cached.py"
    script.write_text(CACHED, encoding="utf-8")
    said = run_on(release, script, DEV="NULL", NULL="1").split("\n")[0]
    assert said == "False {} True {'PCONTIG': (0, 2)} True"


def test_no_bytecode_is_left_in_the_tree(release: str, tree: Path, observed: Any) -> None:
    """A .pyc of a rewritten module would be loaded by whoever imports that tinygrad next."""
    for name in ("indexing", "rangeify"):
        for file in (tree / "tinygrad" / "schedule").rglob(f"{name}*.pyc"):
            assert b"__vmapdbg" not in file.read_bytes()


FREES = """
from vmapdbg.child.listen.hooks import start
recorder = start()
from tinygrad import Tensor
from tinygrad.helpers import GlobalCounters
before = GlobalCounters.mem_used
Tensor.ones(256).contiguous().realize()
print(GlobalCounters.mem_used - before, len(recorder.schedules))
"""


def test_memory_that_is_no_longer_used_is_freed(release: str, tmp_path: Path) -> None:
    """What is kept of a schedule keeps none of its buffers."""
    script = tmp_path / "frees.py"
    script.write_text(FREES, encoding="utf-8")
    assert run_on(release, script, **NULL).split() == ["0", "1"]
