"""A tinygrad with vmap scopes in its own source is shown as the overlay is."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import NamedTuple

import pytest
from lanes import one_of
from tool import ROOT, run_tool, show_json, write
from vmap_tree import make_vmap_tree

LOST_RANGE, PRODUCT_RULE = str(ROOT / "samples" / "lost_range.py"), str(ROOT / "samples" / "product_rule.py")


class Trees(NamedTuple):
    mapped: str
    unmapped: str


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    folder = tmp_path_factory.mktemp("trees")
    return Trees(str(make_vmap_tree(folder / "mapped")), str(make_vmap_tree(folder / "unmapped", has_map=False)))


def run_on(tree: str, command: str, *arguments: str, cwd: Path) -> tuple[int, str]:
    """Returns the exit code, and what a command prints about a program on a tree."""
    done = run_tool(command, *arguments, "--tinygrad", tree, cwd=cwd, COLUMNS="200")
    return done.returncode, done.stdout


@pytest.mark.parametrize("has_map", one_of([False, True], 2))
def test_a_branch_with_its_own_scopes_is_shown_like_the_overlay(trees: Trees, has_map: bool, tmp_path: Path) -> None:
    """The ambient ranges, their `*` and the buffer that does not close them; without a `vmap_map` they are derived."""
    tree = trees[not has_map]
    capture, _ = show_json(Path(LOST_RANGE), "--tinygrad", tree, cwd=tmp_path)
    assert capture["error"] is None
    assert not [line for line in capture["missing"] if "was not observed" in line]
    schedule = capture["schedules"][2]
    scope = {node["id"]: node["ambient"] for node in schedule["nodes"] if node["ambient"]}
    assert {entry["node"]: entry["ranges"] for entry in schedule["vmap_map"]} == scope
    assert {tuple(ranges) for ranges in scope.values()} == {("rm1",)}
    added = next(node["id"] for node in schedule["nodes"] if node["op"] == "ADD" and node["ambient"])
    made = next(one for one in schedule["bufferizes"] if one["node"] == added)
    assert (made["size"], made["ambient"]) == ((6, ["rm1"]) if has_map else (2, []))
    _, shown = run_on(tree, "show", LOST_RANGE, "--only", "vmap,bufferize", "--schedule", "2", cwd=tmp_path)
    _, why = run_on(tree, "why", str(added), LOST_RANGE, "--schedule", "2", cwd=tmp_path)
    assert "although the graph" not in shown
    for text in (shown, why):
        assert ("rm1*, r" in text, "ambient rm1 is NOT closed" in text) == (has_map, not has_map)


@pytest.mark.slow
def test_lint_and_check_find_the_fault_of_such_a_branch_only_without_its_map(trees: Trees, tmp_path: Path) -> None:
    for tree, code in zip(trees, (0, 1), strict=True):
        linted, findings = run_on(tree, "lint", LOST_RANGE, cwd=tmp_path)
        checked, result = run_on(tree, "check", LOST_RANGE, cwd=tmp_path)
        assert (linted, checked) == (code, code)
        assert ("VD101" in findings, "no dimension for the ambient range rm1" in result) == (code == 1,) * 2


def test_two_such_branches_are_compared(trees: Trees, tmp_path: Path) -> None:
    _, text = run_on(trees.mapped, "diff", LOST_RANGE, f"--baseline={trees.unmapped}", cwd=tmp_path)
    assert "before, ambient rm1 was NOT closed" in text
    assert "(+rm1*, r4)" in text


def test_a_tree_that_follows_only_the_first_source_loses_half_of_the_product_rule(trees: Trees, tmp_path: Path) -> None:
    """The first source of a node decides its ambient ranges there."""
    code, text = run_on(trees.mapped, "check", PRODUCT_RULE, cwd=tmp_path)
    assert code == 1
    assert "first at [0, 2]: 0.27, should be 0.54" in text
    _, text = run_on(trees.mapped, "show", PRODUCT_RULE, "--only", "vmap", cwd=tmp_path)
    assert "!! it lacks rm1, rm2, on which nodes" in text


def broken_program() -> None:
    from tinygrad import Tensor, UOp, dtypes
    from tinygrad.uop.ops import AxisType

    batch, keep = UOp.range(3, -1, AxisType.LOOP), UOp.const(dtypes.index, 0)
    x = Tensor.arange(12).reshape(4, 3).contiguous().realize().vmapin((keep, batch))  # type: ignore[attr-defined]
    global inside
    inside = Tensor.stack(x[0] + x[1], x[2] + x[3]).contiguous()[[0, 1]]
    print(inside.vmapout((batch, keep)).tolist())  # type: ignore[attr-defined]


def test_a_tensor_that_a_schedule_broke_is_no_failure_of_the_program(trees: Trees, tmp_path: Path) -> None:
    """A value inside a scope is mapped to the buffer of the batch there: the Tensor that is left has no valid shape."""
    snippet = tmp_path / write(tmp_path, f"{inspect.getsource(broken_program)}\nbroken_program()\n")
    capture, printed = show_json(snippet, "--tinygrad", trees.mapped, cwd=tmp_path)
    assert "[[3, 15], [5, 17], [7, 19]]" in printed
    assert capture["error"] is None
    assert any("was left lazy was not scheduled" in line for line in capture["missing"])
