"""The peak of memory is the program's own on each release, observed as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from memory_programs import PROGRAMS, check_peak, measure_alone, watch


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_peak_is_the_programs_own(name: str, tree: Path, tmp_path: Path) -> None:
    text = PROGRAMS[name]
    alone = measure_alone(tmp_path, text, sys.executable, PYTHONPATH=str(tree))
    memory = check_peak(watch(tmp_path, text, "--tinygrad", str(tree)), alone)
    known = [one for one in memory["live"] if one["kind"] == "kernel"]
    assert known
    assert all(one["value"]["node"] is not None for one in known)
    assert any(part["call"] == 2 for part in memory["parts"]) == (name == "jit")
