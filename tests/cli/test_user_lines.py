"""Nearly every op has a line of the user, also on the overlay, which schedules a graph several times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lanes import one_of
from tool import ROOT, STEPS, RunSample, run_tool, share_without_line

ATTENTION = next(step for step in STEPS if step.stem == "attention")
SAMPLES = [ROOT / "samples" / f"{name}.py" for name in ("rotary", "softmax", "lost_range", "ffn_overfusion", "xsum")]
# the training steps take 40 seconds
IN_THE_SLOW_LANE = [pytest.param(step, marks=pytest.mark.slow) for step in STEPS]


@pytest.mark.parametrize("program", [*IN_THE_SLOW_LANE, *one_of(SAMPLES, 2)], ids=lambda path: path.stem)
def test_hardly_an_op_has_no_line(program: Path, run_sample: RunSample) -> None:
    """Else the longest kernels of a program may have no line, and nothing leads from them to the user's code."""
    done = run_sample("show", str(program), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert share_without_line(json.loads(done.stdout)) <= 0.02


def test_three_matmuls_of_a_line_are_found(run_sample: RunSample, tmp_path: Path) -> None:
    numbers = enumerate(ATTENTION.read_text(encoding="utf-8").splitlines(), start=1)
    line = next(number for number, text in numbers if text.startswith("q, k, v = (x @ to_q"))
    (tmp_path / "run.json").write_text(run_sample("show", str(ATTENTION), "--json").stdout, encoding="utf-8")
    done = run_tool("why", f"attention.py:{line}", "run.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "REDUCE_AXIS" in done.stdout


@pytest.mark.parametrize("trace", ["0", "1"])
def test_a_schedule_that_only_makes_values_out_of_nothing_has_the_phase_of_data(tmp_path: Path, trace: str) -> None:
    """Else hundreds of lines about random numbers hide the program. TRACEMETA wraps the methods of Tensor."""
    text = "Tensor.rand(4, 4).realize()\nTensor.arange(9).contiguous().realize()\nTensor.rand(8).sum().realize()\n"
    (tmp_path / "drawn.py").write_text(f"from tinygrad import Tensor\n{text}", encoding="utf-8")
    done = run_tool("show", "drawn.py", "--json", cwd=tmp_path, TRACEMETA=trace)
    assert done.returncode == 0, done.stderr
    phases = [{kernel["phase"] for kernel in schedule["kernels"]} for schedule in json.loads(done.stdout)["schedules"]]
    assert phases == [{"data"}, {"data"}, {"data", "forward"}]
