"""The overlay does not change programs that do not use it: the same kernels, to the key of each AST.

A failure means that a user who debugs an ordinary program with vmapdbg is shown kernels that tinygrad would
not make. The programs come from stock_table.py;
`python -m tests.upstream` compares the schedules of tinygrad's own tests.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vmapdbg.install.overlay import child_environment
from vmapdbg.install.patches import format_patches, parse_patches

Schedules = list[list[str]]

PROGRAMS = Path(__file__).parent / "stock_programs.py"
# the vmap patches; the fusion patches change the kernels of ordinary programs on purpose
VMAP_PATCHES = "ambient-ranges,nested-ranges,close-ranges"
SIDES = {"stock": None, "none": "none", "vmap": VMAP_PATCHES}
# what a user may have set, and what would change the schedules
REMOVED_VARIABLES = {"BEAM", "CPU", "DEBUG", "IMAGE", "JIT", "NOOPT", "PCONTIG", "PYTHON", "SPLIT_REDUCEOP", "WINO"}


def record_schedules(patches: str | None, amount: str) -> dict[str, Any]:
    """Returns what `stock_programs.py AMOUNT` prints in a process of its own. None: stock tinygrad."""
    chosen = None if patches is None else format_patches(parse_patches(patches))
    environment = child_environment(chosen, dict(os.environ))
    for name in REMOVED_VARIABLES:
        environment.pop(name, None)
    environment["DEV"] = "NULL"
    done = subprocess.run(
        [sys.executable, str(PROGRAMS), amount],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(("amount", "at_least"), [("some", 150), pytest.param("all", 2400, marks=pytest.mark.slow)])
def test_programs_without_vmap_are_scheduled_as_by_stock(amount: str, at_least: int) -> None:
    """All patches off, and all vmap patches on. It is one test, so that xdist records each side once."""
    record = functools.partial(record_schedules, amount=amount)
    with ThreadPoolExecutor(max_workers=2) as pool:
        documents = dict(zip(SIDES, pool.map(record, SIDES.values()), strict=True))
    check_sides(documents)
    stock = documents["stock"]["schedules"]
    check_programs(stock, at_least)
    for name in ("none", "vmap"):
        overlay = documents[name]["schedules"]
        differing = [program for program in stock | overlay if stock.get(program) != overlay.get(program)]
        shown = [f"  {key}: {describe(stock.get(key))} -> {describe(overlay.get(key))}" for key in differing[:20]]
        found = f"{len(differing)} of {len(stock)} programs are scheduled differently"
        assert not differing, "\n".join([f"patches {name}: {found}", *shown])
    print("compared twice:", count_all(stock))


def check_sides(documents: dict[str, dict[str, Any]]) -> None:
    """Each process ran on what it should: otherwise stock would be compared with stock."""
    states = {name: (document["overlay"], document["patches"]) for name, document in documents.items()}
    vmap_patches = sorted(VMAP_PATCHES.split(","))
    assert states == {"stock": (False, []), "none": (True, []), "vmap": (True, vmap_patches)}


def check_programs(stock: dict[str, Schedules], at_least: int) -> None:
    """The programs are enough, and they work: a program that raises compares little.

    With PCONTIG stock itself raises in some; there the overlay must raise the same.
    """
    raised = [name for name in stock if "PCONTIG=0" in name and "raised" in describe(stock[name])]
    assert raised == []
    assert count_all(stock)["schedules"] > at_least


def count_all(programs: dict[str, Schedules]) -> dict[str, int]:
    schedules = [keys for found in programs.values() for keys in found]
    return {"programs": len(programs), "schedules": len(schedules), "kernels": sum(map(len, schedules))}


def describe(schedules: Schedules | None) -> str:
    if schedules is None:
        return "missing"
    raised = [key for keys in schedules for key in keys if key.startswith("raised")]
    return f"kernels {[len(keys) for keys in schedules]} {' '.join(raised)}".strip()
