"""The peak of memory is the program's own on each release, observed as it is."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from memory_programs import PROGRAMS, check_peak, measure_alone, watch
from tool import run_tool, write


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_peak_is_the_programs_own(name: str, tree: Path, tmp_path: Path) -> None:
    def run_here(*arguments: str, text: str) -> CompletedProcess[str]:
        write(tmp_path, text)
        return run_tool(*arguments, cwd=tmp_path)

    text = PROGRAMS[name]
    alone = measure_alone(tmp_path, text, sys.executable, PYTHONPATH=str(tree))
    memory = check_peak(watch(run_here, text, "--tinygrad", str(tree)), alone)
    known = [one for one in memory["live"] if one["kind"] == "kernel"]
    assert known
    assert all(one["value"]["node"] is not None for one in known)
    assert any(part["call"] == 2 for part in memory["parts"]) == (name == "jit")
