"""Observing stock tinygrad changes nothing on each release. What is seen is in test_captures.py."""

from __future__ import annotations

import json
from pathlib import Path

from release_trees import HERE, PROGRAMS, load_observed, run_observed, run_on


def test_kernels_are_stock_to_the_key(release: str, tree: Path) -> None:
    stock = json.loads(run_on(release, HERE / "observed.py", "keys", *PROGRAMS))
    assert Path(stock["tinygrad"]).is_relative_to(tree)
    for name, keys in stock["keys"].items():
        schedules = load_observed(release, name).schedules
        assert [kernel.key for schedule in schedules for kernel in schedule.kernels] == keys != [], name


CACHED = """
from vmapdbg.child.listen.releases import schedule_tensors
from tinygrad import Tensor
from tinygrad.helpers import Context
for level in (0, 2):
    with Context(PCONTIG=level):
        x = Tensor.empty(4, 8)
        schedule_tensors([x.softmax()])
first, second = recorder.schedules
print(first.cached, first.not_in_key, second.cached, second.not_in_key, second.passed is first.passed)
"""


def test_a_cached_schedule_lists_facts_that_are_not_in_its_key(release: str) -> None:
    """Upstream's own TestPcontig passes only because PCONTIG is not in the key."""
    said = run_observed(release, CACHED).split("\n")[0]
    assert said == "False {} True {'PCONTIG': (0, 2)} True"


def test_no_bytecode_is_left_in_the_tree(release: str, tree: Path) -> None:
    """The next process that imports that tinygrad would load a .pyc of a rewritten module."""
    load_observed(release, PROGRAMS[0].stem)
    for name in ("indexing", "rangeify"):
        for file in (tree / "tinygrad" / "schedule").rglob(f"{name}*.pyc"):
            assert b"__vmapdbg" not in file.read_bytes()


FREES = """
from tinygrad import Tensor
from tinygrad.helpers import GlobalCounters
before = GlobalCounters.mem_used
Tensor.ones(256).contiguous().realize()
print(GlobalCounters.mem_used - before, len(recorder.schedules))
"""


def test_memory_that_is_no_longer_used_is_freed(release: str) -> None:
    """What is kept of a schedule keeps none of its buffers."""
    assert run_observed(release, FREES).split() == ["0", "1"]
