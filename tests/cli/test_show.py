"""What `show` captures and prints, on small programs whose numbers can be worked out by hand."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tool import ROOT, RunSample, run_tool, show_json, without_places

TARGETS = {
    "c": "void E_",
    "metal": "kernel void",
    "cuda": "__global__ void",
    "opencl": "__kernel void",
    "hip": "__attribute__((global)) void",
    "wgsl": "@compute @workgroup_size",
    "llvm": "define void @E_",
}
# what every run of the tests looks at; each target takes a run of the tool
USUAL_TARGETS = ("c", "metal")
EACH_TARGET = [
    pytest.param(target, text, marks=() if target in USUAL_TARGETS else pytest.mark.slow)
    for target, text in TARGETS.items()
]


def show_text(tmp_path: Path, text: str, *arguments: str, **variables: str) -> tuple[dict[str, Any], str]:
    snippet = tmp_path / "snippet.py"
    snippet.write_text("from tinygrad import Tensor, TinyJit, UOp, dtypes\n" + text, encoding="utf-8")
    return show_json(snippet, *arguments, cwd=tmp_path, **variables)


def only_kernel(capture: dict[str, Any]) -> dict[str, Any]:
    (kernel,) = capture["schedules"][-1]["kernels"]
    return kernel


WORK = """
plain = Tensor.empty(64, 64) + 1
product = Tensor.empty(64, 32) @ Tensor.empty(32, 128)
rows = Tensor.empty(32, 32).sum(1)
powers = Tensor.empty(64).exp2()
long_rows = Tensor.empty(4, 4096).sum(1)
"""


@cache
def show_work(target: str) -> dict[str, dict[str, Any]]:
    """Returns the kernel of each line of WORK for a target by the name of its variable. One run is for all tests."""
    with TemporaryDirectory() as folder:
        capture, _ = show_text(Path(folder), WORK, "--target", target)
    assert capture["target"] == target
    names = [line.partition(" =")[0] for line in WORK.splitlines()]
    kernels = {}
    for kernel in capture["schedules"][-1]["kernels"]:
        (line,) = kernel["lines"]
        kernels[names[int(line.rpartition(":")[2]) - 2]] = kernel
    return kernels


@pytest.mark.parametrize(("target", "text"), EACH_TARGET)
def test_source_is_rendered_for_the_target_without_its_device(target: str, text: str) -> None:
    kernel = show_work(target)["plain"]
    assert kernel["target"] == target
    assert text in kernel["source"]
    assert kernel["executed_ops"] == 64 * 64
    assert kernel["bytes"] == 2 * 4 * 64 * 64


@pytest.mark.parametrize("target", ["c", "metal", "cuda", "opencl"])
def test_executed_ops_of_a_matmul_are_its_multiplies_and_adds(target: str) -> None:
    """tinygrad's own estimate loses the factor of threads inside loops."""
    kernel = show_work(target)["product"]
    asked = 2 * 64 * 128 * 32
    # the first add of an unrolled reduce may be saved, and a GROUP adds its partial sums once more
    assert asked * 0.9 <= kernel["executed_ops"] <= asked * 1.1
    assert 0.9 <= kernel["redundancy"] <= 1.1


def test_redundant_work_is_counted() -> None:
    """On Metal a row of 32 is summed by 16 threads, and then each of them adds up the 16 partial sums."""
    assert show_work("c")["rows"]["redundancy"] == pytest.approx(1.0, abs=0.05)
    kernel = show_work("metal")["rows"]
    assert kernel["local_size"] == [16, 1, 1]
    assert kernel["executed_ops"] == 32 * (32 + 16 * 16)
    assert kernel["redundancy"] == 9.0

    # exp2 is one op on Metal and a polynomial on the CPU; neither is redundant work
    for target, least in (("metal", 1), ("c", 10)):
        kernel = show_work(target)["powers"]
        assert kernel["executed_ops"] >= least * 64
        assert kernel["redundancy"] == pytest.approx(1.0, abs=0.1)


def test_local_memory_and_threads_are_counted_in_the_program() -> None:
    kernel = show_work("metal")["long_rows"]
    assert kernel["local_bytes"] > 0
    threads = 1
    for size in (*kernel["global_size"], *kernel["local_size"]):
        threads *= size
    assert kernel["threads"] == threads
    # lint compares with what a group of threads has; a CPU has no such memory
    assert kernel["local_bytes"] <= kernel["local_limit"] == 32768
    assert show_work("c")["rows"]["local_limit"] is None


def test_schedule_cache_hides_nothing(tmp_path: Path) -> None:
    text = "def f():\n  return (Tensor([1.0, 2.0]).realize() + 1).contiguous().realize()\nf()\nf()\n"
    capture, _ = show_text(tmp_path, text)
    first, _, second = capture["schedules"][1:4]
    assert first["kernels"]
    assert not first["cached"]
    assert second["cached"]
    assert {**first, "index": 0, "cached": True} == {**second, "index": 0}
    assert first["line"] == second["line"] == "snippet.py:3"


def test_lazy_tensors_are_scheduled_and_not_run(tmp_path: Path) -> None:
    text = (
        "import atexit\nfrom tinygrad import GlobalCounters\n"
        "atexit.register(lambda: print('kernels run:', GlobalCounters.kernel_count))\n"
        "middle = Tensor.empty(4) + 1\nends = {'a': [(middle * 2).sum()]}\nother = Tensor.empty(3).exp2()\n"
        "ends['itself'] = ends\n"
    )
    capture, printed = show_text(tmp_path, text)
    assert "kernels run: 0" in printed
    (schedule,) = capture["schedules"]
    # `middle` is a step on the way to an end, and no output of its own
    assert len(schedule["kernels"]) == 2
    assert schedule["line"] is None


def test_tensors_left_as_garbage_end_without_a_word(tmp_path: Path) -> None:
    text = "import gc\ngc.disable()\nx = Tensor([[1.0, 2.0], [3.0, 4.0]]).contiguous().realize()\n"
    assert not show_text(tmp_path, f"{text}y = Tensor.stack(x[:1].sum(), x[1:].sum())[[0, 1]].tolist()\n")[1]


def test_a_value_left_inside_a_scope_is_not_an_output(tmp_path: Path) -> None:
    text = "r = UOp.range(3, -1)\nx = Tensor.empty(3, 2).vmapin((r, 0))\nout = x.sum().vmapout((r,))\n"
    capture, _ = show_text(tmp_path, text)
    assert capture["error"] is None
    assert len(capture["schedules"][0]["kernels"]) == 1


def test_lines_are_the_users_through_functions_loops_and_files(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("def scale(x):\n  return x * 3\n", encoding="utf-8")
    text = (
        "import layers\nx = Tensor.empty(4)\n"  # lines 2, 3
        "for _ in range(2):\n  x = layers.scale(x)\n"  # 4, 5
        "out = (x.square()\n       .sum())\n"  # 6, 7
    )
    capture, _ = show_text(tmp_path, text)
    lines = {node["op"]: node["line"] for node in capture["schedules"][0]["nodes"]}
    assert lines["REDUCE_AXIS"] == "snippet.py:7"
    assert "layers.py:2" in only_kernel(capture)["lines"]
    assert all(line.split(":")[0] in {"snippet.py", "layers.py"} for line in only_kernel(capture)["lines"])


def test_reasons_name_their_causes(tmp_path: Path) -> None:
    """The decisions of the pass on x * sum(x): why each node is, or is not, a buffer."""
    capture, _ = show_text(tmp_path, "x = Tensor.empty(4, 8)\nout = x * x.sum(1, keepdim=True)\n", "--patches=none")
    nodes = {node["id"]: node for node in capture["schedules"][0]["nodes"]}
    realized = {node["op"]: node["realized"] for node in nodes.values() if node["realized"] is not None}
    assert realized["MUL"]["reason"] == "output"
    assert realized["REDUCE_AXIS"]["reason"] == "ending-ranges"
    (expand,) = [node["id"] for node in nodes.values() if node["op"] == "EXPAND"]
    assert f"at EXPAND {expand}" in realized["REDUCE_AXIS"]["detail"]
    outcomes = {nodes[b["node"]]["op"]: b for b in capture["schedules"][0]["bufferizes"]}
    assert outcomes["REDUCE_AXIS"]["outcome"] == "kept"
    assert "a reduce in its value reads a buffer" in outcomes["REDUCE_AXIS"]["reason"]
    assert (outcomes["REDUCE_AXIS"]["size"], outcomes["REDUCE_AXIS"]["bytes"]) == (4, 16)


def test_consumers_that_disagree_are_named(tmp_path: Path) -> None:
    capture, _ = show_text(tmp_path, "x = Tensor.empty(4, 4) + 1\nout = x + x.T\n")
    (reason,) = [
        node["realized"] for node in capture["schedules"][0]["nodes"]
        if node["realized"] is not None and node["realized"]["reason"] == "consumers-disagree"
    ]  # fmt: skip
    assert reason["axes"] == [0, 1]
    assert "asks r0" in reason["detail"]
    assert "asks r1" in reason["detail"]


def test_kernels_are_tied_to_their_nodes(tmp_path: Path) -> None:
    capture, _ = show_text(tmp_path, "x = Tensor.empty(256, 256)\nout = x.softmax()\n")
    (schedule,) = capture["schedules"]
    kept = {b["node"] for b in schedule["bufferizes"] if b["outcome"] == "kept"}
    assert [k["outputs"][0] for k in schedule["kernels"]] == sorted(kept)
    ids = {node["id"] for node in schedule["nodes"]}
    assert all(set(kernel["nodes"]) <= ids for kernel in schedule["kernels"])
    assert all(set(node["src"]) <= set(range(node["id"])) for node in schedule["nodes"])


def test_two_equal_kernels_are_each_tied_to_their_own_nodes(tmp_path: Path) -> None:
    text = (
        "x, y = Tensor.empty(4, 4), Tensor.empty(4, 4)\na = (x + 1).contiguous()\nb = (y + 1).contiguous()\nc = a @ b\n"
    )
    capture, _ = show_text(tmp_path, text)
    (schedule,) = capture["schedules"]
    first, second, _ = kernels = schedule["kernels"]
    assert first["key"] == second["key"]
    assert len({kernel["outputs"][0] for kernel in kernels}) == 3
    assert [kernel["lines"][-1] for kernel in kernels] == ["snippet.py:3", "snippet.py:4", "snippet.py:5"]


def test_same_input_gives_the_same_bytes(run_sample: RunSample, tmp_path: Path) -> None:
    shown = ("show", "samples/nested_jvp.py", "--json", "--patches", "all", "--target", "c")
    # with a seed by chance
    first = run_sample(*shown).stdout
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    assert run_tool(*shown, cwd=tmp_path, PYTHONHASHSEED="1").stdout == first
    assert json.loads(first)["schedules"]


def test_tinygrads_own_checks_find_nothing(run_sample: RunSample, tmp_path: Path) -> None:
    """With SPEC=2 it checks each node as it is made, and makes the AST of a kernel again from its text."""
    shown = ("show", "samples/lost_range.py", "--json", "--patches", "all", "--target", "c")
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    assert run_tool(*shown, cwd=tmp_path, SPEC="2").stdout == run_sample(*shown).stdout


def test_saved_capture_is_what_json_prints(tmp_path: Path) -> None:
    done = run_tool("show", str(ROOT / "samples" / "xsum.py"), "--json", "--save", "x.json", cwd=tmp_path)
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == done.stdout


def test_snippet_gets_its_arguments_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n", encoding="utf-8")
    text = "import sys, beside\nassert __name__ == '__main__'\nprint(sys.argv, beside.value)\n"
    (tmp_path / "snippet.py").write_text(text, encoding="utf-8")
    done = run_tool("show", "snippet.py", "--", "--steps", "3", cwd=tmp_path)
    assert done.stdout == "['snippet.py', '--steps', '3'] 7\n"


def test_snippet_may_set_tinygrads_environment(tmp_path: Path) -> None:
    """Nothing of tinygrad is imported before the snippet."""
    text = "import os, sys\nassert 'tinygrad.helpers' not in sys.modules\nos.environ['DEV'] = 'NULL'\n"
    (tmp_path / "snippet.py").write_text(
        text + "from tinygrad import Device\nprint(Device.DEFAULT)\n", encoding="utf-8"
    )
    assert run_tool("show", "snippet.py", cwd=tmp_path).stdout == "NULL\n"


def test_without_clang_the_snippet_runs_on_the_python_device(tmp_path: Path) -> None:
    snippet = str(ROOT / "samples" / "lost_range.py")
    done = run_tool("show", snippet, "--only", "vmap", cwd=tmp_path, PATH="/nonexistent", DEV="", CC="no-clang")
    assert done.returncode == 0, done.stderr
    assert "reduce+index    [[3.0, 15.0], [5.0, 17.0], [7.0, 19.0]]" in done.stdout
    assert done.stderr.splitlines() == ["vmapdbg: no clang for the CPU device, running on the PYTHON device (slow)"]


def test_the_line_of_an_error_is_the_users(tmp_path: Path) -> None:
    """What realizes runs under a decorator of the standard library: that is not where the snippet failed."""
    sample = ROOT / "samples" / "lost_range.py"
    capture, _ = show_json(sample, "--patches", "none", cwd=tmp_path)
    file, _, number = capture["error"]["line"].rpartition(":")
    assert Path(file).name == "lost_range.py"
    assert ".tolist()" in sample.read_text(encoding="utf-8").splitlines()[int(number) - 1]


LAYERS = """\
x = Tensor.empty(8, 16)
for _ in range(20):
  x = (x @ Tensor.empty(16, 16)).relu().contiguous()
  x = x / (x.sum() + _)
"""


@pytest.mark.parametrize(
    "tree",
    [pytest.param([], id="patched"), pytest.param(["--tinygrad", "0.12.0"], id="observed", marks=pytest.mark.slow)],
)
def test_a_long_run_is_an_overview_and_all_of_it_is_shown_on_request(tmp_path: Path, tree: list[str]) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text("from tinygrad import Tensor\n" + LAYERS, encoding="utf-8")
    saved = tmp_path / "run.json"
    page = run_tool("show", str(snippet), "--save", str(saved), *tree, cwd=tmp_path).stdout
    assert "Overview  1 schedule" in page
    assert "snippet.py:4" in page
    shares = page.partition("methods share of the ops: ")[2].partition("Functions")[0]
    assert {"__matmul__", "__truediv__", "sum"} <= {*re.findall(r"(\w+) <?\d+%", shares)}
    assert len(page.splitlines()) < 60
    whole = run_tool("show", str(saved), "--all", cwd=tmp_path).stdout
    assert "Overview" not in whole
    assert len(whole.splitlines()) > 5 * len(page.splitlines())
    # a saved capture shows what the run showed; the next commands are about the run
    shown, title, steps = page.partition("\nNext\n")
    assert title
    assert [line.split()[:2] for line in steps.splitlines()] == [["vmapdbg", "why"], ["vmapdbg", "check"]]
    assert run_tool("show", str(saved), cwd=tmp_path).stdout == shown


SLOW_SAMPLES = ("ffn_overfusion", "xsum", "rmsnorm", "whole_gather", "mla_locals")


@pytest.mark.parametrize("name", ["softmax", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_SAMPLES)])
def test_the_overlay_without_patches_shows_the_same_as_its_observed_release(name: str, run_sample: RunSample) -> None:
    """Reasons, outcomes of buffers, user lines and kernels. Else a user cannot trust either."""
    of_one_side = ("mode", "patches", "versions")
    both: list[Any] = []
    for side in (["--patches", "none"], ["--tinygrad", "0.12.0"]):
        done = run_sample("show", f"samples/{name}.py", *side, "--json", "--schedule", "all")
        document = json.loads(done.stdout)
        assert any(node["line"] for node in document["schedules"][0]["nodes"])
        both.append(without_places({key: part for key, part in document.items() if key not in of_one_side}))
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param([], id="patched"),
        pytest.param(["--tinygrad", "0.12.0"], id="0.12.0", marks=pytest.mark.slow),
        pytest.param(["--tinygrad", "0.14.0"], id="0.14.0", marks=pytest.mark.slow),
    ],
)
def test_launches_of_lazy_tensors_and_tinyjit_replays_are_timed_too(tmp_path: Path, tree: list[str]) -> None:
    text = (
        "@TinyJit\ndef f(x): return (x * 2).realize()\nfor _ in range(5): f(Tensor.ones(16).contiguous().realize())\n"
    )
    capture, _ = show_text(tmp_path, text + "lazy = Tensor.ones(7).contiguous() + 3\n", "--time", *tree)
    kernels = [kernel for schedule in capture["schedules"] for kernel in schedule["kernels"]]
    times = [kernel["measured"] for kernel in kernels]
    assert all(0 < time["least"] <= time["median"] <= time["most"] < 10 for time in times)
    # the function's kernel: twice as it is captured, then replayed
    assert 5 in [time["launches"] for time in times]
    untimed, _ = show_text(tmp_path, text, *tree)
    untimed_kernels = [kernel for schedule in untimed["schedules"] for kernel in schedule["kernels"]]
    assert {kernel["measured"] for kernel in untimed_kernels} == {None}
    keys = [kernel["key"] for kernel in untimed_kernels]
    assert keys == [kernel["key"] for kernel in kernels[: len(keys)]]


STEP = """
import vmapdbg
from tinygrad import nn
class Layer:
    def __init__(self): self.w = Tensor.ones(8, 8).contiguous()
    def __call__(self, x): return (x @ self.w).relu()
layer = Layer()
optimizer = nn.optim.SGD([layer.w], lr=0.1)
@TinyJit
def step(x):
    optimizer.zero_grad()
    loss = layer(x).sum().backward()
    return loss.realize(*optimizer.schedule_step())
Tensor.training = True
vmapdbg.mark("steps")
for _ in range(5): step(Tensor.ones(4, 8).contiguous().realize())
vmapdbg.mark(None)
"""


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param([], id="patched"),
        *(
            pytest.param(["--tinygrad", name], id=name, marks=pytest.mark.slow)
            for name in ("0.12.0", "0.13.0", "0.14.0")
        ),
    ],
)
def test_time_says_where_the_time_goes(tmp_path: Path, tree: list[str]) -> None:
    """By parts of the wall time, by marks and calls of a TinyJit, by functions and by phases."""
    capture, _ = show_text(tmp_path, STEP, "--time", *tree, TRAINING="1")
    assert capture["error"] is None
    assert capture["missing"] == []
    timing = capture["timing"]
    assert sum(timing["parts"].values()) == pytest.approx(timing["seconds"])
    assert {"importing", "python", "scheduling", "compiling", "launching", "kernels"} <= set(timing["parts"])
    assert all(seconds > 0 for seconds in timing["parts"].values())
    marks = {mark["name"]: mark for mark in timing["marks"]}
    assert {name: mark["calls"] for name, mark in marks.items()} == {
        "steps": 1,
        "step: first calls": 2,
        "step: replays": 3,
    }
    assert marks["step: first calls"]["seconds"] > marks["step: replays"]["seconds"]
    inner = marks["step: first calls"]["launches"], marks["step: replays"]["launches"]
    assert all(inner)
    # the mark has the inputs, too
    assert marks["steps"]["launches"] == sum(inner) + 5
    assert capture["device"]["ops"] > 0
    assert capture["device"]["bytes"] > 0
    functions = capture["functions"]
    (layer,) = (number for number, one in enumerate(functions) if one["name"] == "Layer.__call__")
    assert functions[functions[layer]["caller"]]["name"] == "step"
    nodes = [node for schedule in capture["schedules"] for node in schedule["nodes"]]
    assert {node["phase"] for node in nodes if node["function"] == layer} == {"forward", "backward"}
    kernels = [kernel for schedule in capture["schedules"] for kernel in schedule["kernels"]]
    titles = {kernel["phase"]: kernel["title"] for kernel in kernels}
    assert {"forward", "backward", "optimizer", "data"} >= set(titles) >= {"backward"}
    assert any(kernel["title"].startswith("matmul 4x8x8") for kernel in kernels)


def test_kernels_are_sorted_by_time_only_if_they_were_timed(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text("from tinygrad import Tensor\n(Tensor.ones(4).contiguous() + 1).realize()\n")
    done = run_tool("show", "snippet.py", "--sort", "time", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--sort time needs the times of the kernels: --time" in done.stderr
    assert "sorted by bytes" in run_tool("show", "snippet.py", "--sort", "bytes", cwd=tmp_path).stdout


@pytest.mark.parametrize("options", [(), ("--kernel", "add")])
def test_beam_times_the_kernels_that_matter_again(tmp_path: Path, options: tuple[str, ...]) -> None:
    text = "x = Tensor.ones(256, 256).contiguous().realize()\n(x @ x).realize()\n(x[0, :2] + 1).realize()\n"
    capture, _ = show_text(tmp_path, text, "--beam", "1", *options)
    kernels = [kernel for schedule in capture["schedules"] for kernel in schedule["kernels"]]
    searched = {kernel["title"].partition(" ")[0] for kernel in kernels if kernel["beam"] is not None}
    assert searched & {"add", "matmul"} == ({"add"} if options else {"matmul"})
    assert len(kernels) > 2


def test_the_longest_kernel_is_timed_without_each_of_its_optimizations(tmp_path: Path) -> None:
    text = "x = Tensor.ones(64, 64).contiguous().realize()\n(x @ x).realize()\nx += 1\nx.realize()\n"
    capture, _ = show_text(tmp_path, text, "--optimizations", "--kernel", "matmul")
    kernels = [kernel for schedule in capture["schedules"] for kernel in schedule["kernels"]]
    (tried,) = (kernel["optimizations"] for kernel in kernels if kernel["optimizations"])
    names = [one["name"] for one in tried]
    assert names[:2] == ["all", "none"]
    assert len(names) > 2
    assert all(one["seconds"] > 0 or one["reason"] for one in tried)


# a scope whose RANGE gets another id in the schedule; a sum over rows and classes; a gather along one of its axes
GATHERS = """
numbers = Tensor.empty(40000)
scope = UOp.range(2, 5)
picked = Tensor.empty(2, 2, dtype=dtypes.int).vmapin((scope, UOp.const(dtypes.index, 0)))
rows = numbers[picked].vmapout((scope, UOp.const(dtypes.index, 0))).realize()
classes = Tensor.empty(4000, dtype=dtypes.int).reshape(4000, 1) == Tensor.arange(40)
loss = (Tensor.empty(4000, 40) * classes).sum()
plain = Tensor.empty(40000).sum()
"""


def test_a_gather_that_is_not_split_says_so(tmp_path: Path) -> None:
    capture, _ = show_text(tmp_path, GATHERS)
    told = [
        (node["line"].rpartition(":")[2], node["unsplit"])
        for schedule in capture["schedules"]
        for node in schedule["nodes"]
        if node["unsplit"] is not None
    ]
    assert [(line, whole["rule"], whole["axes"], whole["rest"], whole["source"]) for line, whole in told] == [
        ("6", "gather", [1], [], [2, 40000]),
        ("8", "gather", [1], [0], [4000, 40]),
    ]
    stock = "(stock makes two kernels: (2, 40000) -> (2, 1, 250) -> (2, 1))"
    assert told[0][1]["detail"] == f"a gather, an index picks one element along axis 1 {stock}"


def test_a_long_schedule_fits_a_page(tmp_path: Path) -> None:
    text = "x = Tensor.empty(8, 8)\nfor n in range(30): x = (x.sum(0) * n + x).contiguous()\nx.realize()\n"
    show_text(tmp_path, text, "--save", "run.json")
    page = run_tool("show", "run.json", "--schedule", "0", cwd=tmp_path, COLUMNS="80").stdout
    assert re.search(r"schedule 0  (\d+) of \1 kernels", page)
    assert len(page.splitlines()) < 70
    assert "Why: vmapdbg why " in page
    whole = run_tool("show", "run.json", "--schedule", "0", "--all", cwd=tmp_path, COLUMNS="80").stdout
    assert len(whole.splitlines()) > 500
