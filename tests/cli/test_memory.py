"""`show --memory`: the peak is the program's own, and what is said about it is true of the run."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from lanes import one_of
from memory_programs import LARGE, MEASURED, PROGRAMS, check_peak, measure_alone, watch
from tool import RunSample, run_tool

PATCHED = (sys.executable, "-m", "vmapdbg", "run")
STOCK = (sys.executable,)
OWN = (
    "rotary attention", "GPT block, training", "ResNet, training", "ConvNet, Adam", "half matmul", "int8 matmul",
)  # fmt: skip
UNSEEN = (
    "LSTM", "sliding window", "BERT, training", "mixture of experts", "top-p sampling", "logcumsumexp",
    "Swin attention", "norms of images", "VAE, training", "graph attention", "Black-Scholes", "Sinkhorn", "k-means",
    "smoothed loss",
)  # fmt: skip
LAZY_GRADIENTS = """
from tinygrad import Tensor, nn
Tensor.training = True
layers = [nn.Linear(64, 64) for _ in range(6)]
optimizer = nn.optim.SGD(nn.state.get_parameters(layers), lr=0.1)
x = Tensor.rand(2048, 64).realize()
for step in range(3):
    optimizer.zero_grad()
    out = x
    for layer in layers:
        out = layer(out).tanh()
    out.sum().backward()
    STEP
"""

STEPS = """
from tinygrad import Tensor
x = Tensor.arange(256 * 256).reshape(256, 256).float().contiguous().realize()
w = (x * 0.001).contiguous().realize()
def step(x, w):
    early = (x + 1).sqrt().contiguous()
    h = x
    for _ in range(3):
        h = ((h @ w) * 1e-3).contiguous()
    return (h * early).sum()
print(step(x, w).item())
"""
EDITS = {
    "recompute": [(".sqrt().contiguous()", ".sqrt()")],
    "half": [("((h @ w) * 1e-3)", "((h.float() @ w) * 1e-3).half()"), ("(h * early)", "(h.float() * early)")],
}
"""What somebody types who follows the advice."""


@pytest.mark.parametrize("name", one_of(PROGRAMS, 3))
def test_the_peak_is_the_programs_own(name: str, run_sample: RunSample, tmp_path: Path) -> None:
    text = PROGRAMS[name]
    memory = check_peak(watch(run_sample, text, "--patches", "none"), measure_alone(tmp_path, text, *STOCK))
    known = [one for one in memory["live"] if one["kind"] == "kernel"]
    assert known
    assert all(one["value"]["line"].startswith("snippet.py:") for one in known)
    assert all(one["value"]["node"] is not None and one["first"]["launch"] <= one["last"]["launch"] for one in known)
    calls = {part["call"] for part in memory["parts"]}
    # the first call, the captured call, replays
    assert calls == ({None, 0, 1, 2} if name == "jit" else {None})


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OWN, *UNSEEN])
def test_twenty_programs_with_tinyjit_have_their_own_peak(name: str, run_sample: RunSample, tmp_path: Path) -> None:
    module, table = ("own_programs", "OWN") if name in OWN else ("unseen_programs", "UNSEEN")
    text = MEASURED.format(module=module, table=table, name=name)
    memory = check_peak(watch(run_sample, text), measure_alone(tmp_path, text, *PATCHED))
    assert any(part["call"] == 2 for part in memory["parts"])


def test_the_planners_memory_is_shown_as_its_values(run_sample: RunSample) -> None:
    """An arena would say nothing about a program."""
    memory = watch(run_sample, PROGRAMS["jit"], "--patches", "none")["memory"]
    planned = [one for one in memory["live"] if one["is_planned"]]
    assert planned
    assert any(one["shares"] for one in planned)
    assert all(one["value"]["line"].startswith("snippet.py:") and one["dtype"] != "char" for one in planned)
    assert all(one["since"] == one["first"]["launch"] and one["until"] == one["last"]["launch"] for one in planned)


def test_each_kernel_has_the_memory_while_it_runs(run_sample: RunSample) -> None:
    """The tree of functions has the highest of them: the peak of the run is that of one of its kernels."""
    capture = watch(run_sample, LARGE)
    memory, peaks = capture["memory"], [k["peak"] for s in capture["schedules"] for k in s["kernels"]]
    assert max(peaks) == memory["peak"] - memory["unused"]
    assert 0 < min(peaks) < max(peaks)


def test_a_global_that_is_not_used_again_should_be_deleted_and_that_gives_the_predicted_peak(
    run_sample: RunSample, tmp_path: Path
) -> None:
    memory = watch(run_sample, LARGE)["memory"]
    (advice,) = [one for one in memory["advice"] if one["kind"] == "free"]
    assert (advice["name"], advice["line"]) == ("d", "snippet.py:5")
    edited = LARGE.replace("c = ", "del d\nc = ")
    assert advice["peak"] == measure_alone(tmp_path, edited, *PATCHED) < memory["peak"]


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_as_advised_gives_the_predicted_peak(kind: str, run_sample: RunSample, tmp_path: Path) -> None:
    memory = watch(run_sample, STEPS)["memory"]
    # the first of its kind saves most
    advice = next(one for one in memory["advice"] if one["kind"] == kind)
    edited = STEPS
    for old, new in EDITS[kind]:
        edited = edited.replace(old, new)
    alone = measure_alone(tmp_path, edited, *PATCHED)
    assert abs(advice["peak"] - alone) <= 0.01 * alone < 0.01 * memory["peak"]


def test_memory_of_a_schedule_cannot_be_freed_while_it_runs(run_sample: RunSample) -> None:
    """Only the schedule that has the peak uses `x`: to delete `x` after it changes nothing."""
    assert "free" not in {one["kind"] for one in watch(run_sample, STEPS)["memory"]["advice"]}


@pytest.mark.slow
def test_lazy_gradients_that_hold_activations_are_found_and_dropping_them_gives_the_predicted_peak(
    run_sample: RunSample, tmp_path: Path
) -> None:
    kept = LAZY_GRADIENTS.replace("STEP", "optimizer.step()")
    dropped = "new = optimizer.schedule_step(); optimizer.zero_grad(); Tensor.realize(*new)"
    memory = watch(run_sample, kept, "--patches", "none")["memory"]
    (advice,) = [one for one in memory["advice"] if one["kind"] == "free"]
    assert ".grad" in advice["name"]
    alone = measure_alone(tmp_path, LAZY_GRADIENTS.replace("STEP", dropped), *STOCK)
    assert abs(advice["peak"] - alone) <= 0.01 * alone < 0.01 * memory["peak"]


def test_the_page_the_overview_the_picture_and_the_report_have_the_peak(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(LARGE)
    done = run_tool("show", "snippet.py", "--memory", "--save", "a.json", "-o", "a.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("MiB at the peak, launch", "Lifetimes", "Live at the peak", "del d after snippet.py:5"):
        assert words in done.stdout
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    again = run_tool("show", "a.json", "--memory", cwd=tmp_path)
    assert again.stdout.splitlines()[-5:] == done.stdout.splitlines()[-5:]
    assert run_tool("report", "a.json", "-o", "a.html", cwd=tmp_path).returncode == 0
    page = (tmp_path / "a.html").read_text()
    assert "at the peak</summary>" in page
    assert "<polygon" in page


@pytest.mark.slow
def test_a_diff_compares_two_peaks(tmp_path: Path) -> None:
    for name, text in (("a", LARGE), ("b", LARGE.replace("5000", "2500"))):
        (tmp_path / f"{name}.py").write_text(text)
    done = run_tool("diff", "a.py", "b.py", "--memory", cwd=tmp_path)
    # 2500 * 2500 floats and 1000 * 1000 floats are 27.7 MiB
    assert "memory: 99.2 MiB -> 27.7 MiB" in done.stdout, done.stdout[-800:]


def test_without_watching_the_overview_says_only_what_is_sure(tmp_path: Path) -> None:
    # a program for each number of columns: so many are shown by their overview
    text = "from tinygrad import Tensor\nfor n in range(20):\n"
    text += "  x = (Tensor.ones(4, n + 2).contiguous() + n).sum(0).realize()\n"
    (tmp_path / "snippet.py").write_text(text)
    done = run_tool("show", "snippet.py", "--save", "a.json", cwd=tmp_path)
    assert "memory: at least 336 B, a buffer of snippet.py:3" in done.stdout
    refused = run_tool("show", "a.json", "--memory", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "a.json was saved without --memory" in refused.stderr
    refused = run_tool("show", "snippet.py", "-o", "a.svg", cwd=tmp_path)
    assert refused.returncode == 2
    assert "-o is for the lifetimes of --memory" in refused.stderr
    assert not (tmp_path / "a.svg").exists()


def test_a_snippet_that_runs_nothing_has_what_it_leaves_lazy_run(run_sample: RunSample) -> None:
    text = "from tinygrad import Tensor\nout = (Tensor.ones(64, 64).contiguous() + 1).sum(0)"
    memory = watch(run_sample, text)["memory"]
    assert memory["peak"] >= 64 * 64 * 4
    assert memory["line"] is None
