"""The overlay leaves programs that use nothing of it alone: same schedules, same kernels, to the key of each AST.

A failure means that a user who debugs an ordinary program with vmapdbg is shown kernels that tinygrad would not make.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vmapdbg.overlay import child_environment
from vmapdbg.patches import format_patches, parse_patches

PROGRAMS = Path(__file__).parent / "stock_programs.py"
# the patches of vmap; those of fusion change the kernels of ordinary programs, that is what they are for
VMAP_PATCHES = "ambient-ranges,nested-ranges,close-ranges"
SIDES = {"stock": None, "none": "none", "vmap": VMAP_PATCHES}
# what a user may have set, and what would change the schedules
REMOVED_VARIABLES = {
    "BEAM",
    "CPU",
    "DEBUG",
    "IMAGE",
    "JIT",
    "NOOPT",
    "PCONTIG",
    "PYTHON",
    "SPLIT_REDUCEOP",
    "WINO",
}


def record_schedules(patches: str | None) -> dict[str, Any]:
    """Returns what stock_programs.py prints in a process of its own. None: stock tinygrad."""
    chosen = None if patches is None else format_patches(parse_patches(patches))
    environment = child_environment(chosen, dict(os.environ))
    for name in REMOVED_VARIABLES:
        environment.pop(name, None)
    environment["DEV"] = "NULL"
    done = subprocess.run(
        [sys.executable, str(PROGRAMS)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(SIDES, pool.map(record_schedules, SIDES.values()), strict=True))


def assert_equal_schedules(stock: dict[str, Any], overlay: dict[str, Any], report: Any) -> None:
    left, right = stock["schedules"], overlay["schedules"]
    differing = [name for name in left if left[name] != right.get(name)]
    shown = "\n".join(
        f"  {name}: {describe(left[name])} -> {describe(right.get(name))}" for name in differing[:20]
    )
    assert not differing, f"{len(differing)} of {len(left)} programs are scheduled differently:\n{shown}"
    assert left.keys() == right.keys()
    report("programs", len(left))
    report("schedules", sum(len(schedules) for schedules in left.values()))
    report("kernels", sum(len(keys) for schedules in left.values() for keys in schedules))


def describe(schedules: list[list[str]] | None) -> str:
    if schedules is None:
        return "missing"
    raised = [key for keys in schedules for key in keys if key.startswith("raised")]
    return f"kernels {[len(keys) for keys in schedules]} {' '.join(raised)}".strip()


@pytest.mark.xdist_group("stock-keys")
class TestStockKeys:
    """One class, so that `--dist loadgroup` makes the three recordings once."""

    def test_sides_are_what_they_should_be(self, documents: dict[str, dict[str, Any]]) -> None:
        """Otherwise the next two tests would compare stock with stock."""
        states = {name: (document["overlay"], document["patches"]) for name, document in documents.items()}
        assert states == {
            "stock": (False, []),
            "none": (True, []),
            "vmap": (True, sorted(VMAP_PATCHES.split(","))),
        }

    def test_programs_schedule(self, documents: dict[str, dict[str, Any]]) -> None:
        """A program that raises compares nothing. (With PCONTIG stock raises in some: there it must be equal.)"""
        schedules = documents["stock"]["schedules"]
        raised = [
            name
            for name in schedules
            if name.startswith("PCONTIG=0") and "raised" in describe(schedules[name])
        ]
        assert raised == []
        assert sum(len(found) for found in schedules.values()) > 1000
        assert len(schedules) > 400

    def test_all_patches_off(self, documents: dict[str, dict[str, Any]], record_property: Any) -> None:
        assert_equal_schedules(documents["stock"], documents["none"], record_property)

    def test_vmap_patches_on(self, documents: dict[str, dict[str, Any]], record_property: Any) -> None:
        assert_equal_schedules(documents["stock"], documents["vmap"], record_property)
