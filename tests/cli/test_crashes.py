"""When tinygrad itself fails, or never ends, the tool shows the place, the nodes and the rules, and the values by
numpy. If its process dies, what was captured before is shown, with how it died and what ran."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from lanes import one_of
from tool import is_running, run_command, run_tool, wait_until, write

HANGS = """\
from tinygrad import Tensor
rows = Tensor.ones(48, 64).contiguous().realize()
total = rows.pad(((1, 2), (0, 0))).sum(1)
total.realize()
"""
CRASHES = """\
from tinygrad import Tensor
grid = Tensor.ones(33, 16).contiguous().realize()
best = grid.pad(((2, 2), (0, 2))).max(0)
best.realize()
"""
CYCLE = """\
from tinygrad import Tensor
a = Tensor([1.0, 2.0]).contiguous().realize()
b = Tensor([3.0, 4.0]).contiguous().realize()
before = a * b + 1
a.assign(b + 1)
after = before.flip(0) + a
Tensor.realize(a, after, before)
"""
GRAPH = """\
from tinygrad import Tensor
x = Tensor.ones(2, 3).contiguous().realize()
y = x.reshape(7)
"""


def check_json(text: str, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Returns the exit code and the document of `check --json` of a program."""
    done = run_tool("check", write(folder, text), "--json", *arguments, cwd=folder)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def find_failed(document: dict[str, Any]) -> dict[str, Any]:
    (failed,) = [check for check in document["schedules"] if check["failed"] is not None]
    return failed


@pytest.mark.slow
def test_a_hang_is_reported_with_its_nodes_its_rule_and_the_right_values(tmp_path: Path) -> None:
    status, document = check_json(HANGS, tmp_path, "--patches", "none", "--timeout", "300")
    failed = find_failed(document)
    crash = failed["crash"]
    assert (status, document["error"]["type"], crash["kind"]) == (4, "EndlessRewrite", "waits")
    assert crash["rewrite"] == "add control flow"
    made = [step for step in crash["steps"] if step["becomes"] is not None]
    assert {step["rule"].rpartition(":")[0] for step in made} == {"tinygrad/codegen/late/linearizer.py"}
    assert crash["shared_loop"]["ends"] == 2
    assert crash["shared_loop"]["grown"] == "cut store ranges"
    assert failed["expected"][0]["first"] == [0.0, *[64.0] * 7]
    assert [(found["code"], found["line"], found["number"]) for found in document["findings"]] == [
        ("VD205", "snippet.py:3", 0)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["show", "lint"])
def test_a_hang_ends_every_command_with_a_sentence(command: str, tmp_path: Path) -> None:
    write(tmp_path, HANGS)
    done = run_tool(command, "snippet.py", "--patches", "none", "--timeout", "300", cwd=tmp_path, COLUMNS="200")
    said = done.stdout + done.stderr
    assert done.returncode == 4, said
    assert "wait for each other in a circle" in said
    assert "has no program: EndlessRewrite" in said


@pytest.mark.slow
def test_a_crash_of_code_generation_names_the_kernel_and_the_rewrite(tmp_path: Path) -> None:
    status, document = check_json(CRASHES, tmp_path, "--patches", "none")
    failed = find_failed(document)
    crash = failed["crash"]
    assert (status, crash["kind"], crash["stage"], crash["rewrite"]) == (3, "error", "codegen", "add control flow")
    assert (failed["failed_kernel"], crash["kernel"], crash["rule"]) == (0, 0, None)
    assert crash["shared_loop"]["grown"] == "cut store ranges"
    assert (failed["expected"][0]["shape"], failed["expected"][0]["first"][:2]) == ([18], [1.0, 1.0])
    assert [(found["code"], found["line"]) for found in document["findings"]] == [("VD204", "snippet.py:3")]


@pytest.mark.slow
def test_a_crash_of_the_scheduler_names_the_nodes_and_the_rule(tmp_path: Path) -> None:
    status, document = check_json(CYCLE, tmp_path, "--patches", "none")
    failed = find_failed(document)
    crash = failed["crash"]
    assert (status, crash["stage"]) == (3, "schedule")
    assert crash["place"].startswith("tinygrad/schedule/rangeify.py:")
    assert crash["nodes"]
    assert [output["first"] for output in failed["expected"]] == [[4.0, 5.0], [13.0, 9.0], [4.0, 9.0]]
    assert [found["code"] for found in document["findings"]] == ["VD204"]


@pytest.mark.slow
def test_a_crash_that_the_program_expects_is_not_a_finding(tmp_path: Path) -> None:
    text = CYCLE.replace("Tensor.realize(", "try: Tensor.realize(") + "except RuntimeError: print('refused')\n"
    text += "del before, after\na = b\n"
    status, document = check_json(text, tmp_path, "--patches", "none")
    assert (status, document["findings"]) == (0, [])
    assert find_failed(document)["crash"]["stage"] == "schedule"


SCOPE = """\
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType
units = [Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0]), Tensor([0.0, 0.0, 1.0])]
rows = Tensor.arange(30, dtype=dtypes.float32).reshape(10, 3).contiguous().realize()
batch = UOp.range(10, -1, AxisType.OUTER), UOp.const(dtypes.index, 0)
row = rows.vmapin(batch)
flat = Tensor.stack(*[row * unit for unit in units]).flatten().contiguous()
picked = Tensor.stack(flat[0], flat[1]).vmapout(batch)
try:
    picked.realize()
except RuntimeError as error:
    print(error)
del row, flat, picked
"""
PLANTED = """\
import sys
from tinygrad import Tensor
from tinygrad.engine import realize
numbers = Tensor([1.0, 2.0]).realize()
patches, right = sys.modules["tinygrad_overlay._state"].patches, realize.get_program
realize.get_program = None if patches else right
try:
    (numbers + 1).realize()
except TypeError as error:
    print(error)
realize.get_program = right
"""


PASS_ALONE = """\
from tinygrad.schedule.rangeify import get_rangeify_map
from tinygrad import Tensor
x = Tensor.empty(4, 4)
y = ((x + 1).reshape(4, 4, 1).expand(4, 4, 4) * x).contiguous() + x.sum(0).reshape(1, 4).expand(4, 4)
get_rangeify_map(y.contiguous().uop.sink())
del y
"""
FAILS_EARLY = """\
import os
os.environ["PCONTIG"] = "2"
from tinygrad import Tensor
images = Tensor.empty(4, 6, 8, 8)
mean = images.mean((0, 2, 3), keepdim=True)
variance = (images - mean).square().mean((0, 2, 3), keepdim=True)
((images - mean) * (variance + 1e-5).rsqrt()).realize()
"""


@pytest.mark.parametrize(("text", "fails"), [(PASS_ALONE, False), (FAILS_EARLY, True)])
def test_only_a_schedule_that_failed_is_said_to_have_failed(text: str, fails: bool, tmp_path: Path) -> None:
    write(tmp_path, text)
    done = run_tool("show", "snippet.py", "--json", "--patches", "none", cwd=tmp_path)
    buffers = json.loads(done.stdout)["schedules"][0]["bufferizes"]
    rules = {made["decided"]["rule"] for made in buffers if made["outcome"] == "removed"}
    assert ("schedule-failed" in rules) is fails, rules
    assert rules


STOCKS_OWN = """\
import os
os.environ["REDUCEOP_SPLIT_THRESHOLD"] = "none"
from tinygrad import Tensor
try:
    Tensor.empty(100000).sum().realize()
except ValueError as error:
    print(error)
"""


def test_a_crash_of_stock_itself_is_not_blamed_on_the_patches(tmp_path: Path) -> None:
    """The snippet runs once more, without patches."""
    status, document = check_json(STOCKS_OWN, tmp_path)
    assert (find_failed(document)["stock_runs"], document["findings"]) == (False, [])
    assert status == 0


@pytest.mark.parametrize(("text", "stock_runs"), [(SCOPE, None), (PLANTED, True)])
def test_a_crash_that_only_the_patches_can_cause_is_a_finding_although_it_is_caught(
    text: str, stock_runs: bool | None, tmp_path: Path
) -> None:
    status, document = check_json(text, tmp_path, "--patches", "all,-close-ranges")
    failed = find_failed(document)
    assert (status, document["error"], failed["stock_runs"]) == (1, None, stock_runs)
    assert [found["code"] for found in document["findings"]] == ["VD202"]
    assert failed["failed"] in document["findings"][0]["message"]


def test_an_error_of_building_the_graph_names_the_method(tmp_path: Path) -> None:
    write(tmp_path, GRAPH)
    done = run_tool("check", "snippet.py", cwd=tmp_path, COLUMNS="200")
    assert done.returncode == 3, done.stderr
    assert "the snippet failed at snippet.py:3: ValueError" in done.stdout
    assert "while the graph was built, called by Tensor.reshape" in done.stdout


def test_an_error_of_the_snippet_itself_is_not_tinygrads(tmp_path: Path) -> None:
    status, document = check_json(GRAPH.replace("x.reshape(7)", "1 / 0"), tmp_path)
    assert (status, document["error"]["type"], document["error"]["crash"]) == (3, "ZeroDivisionError", None)


@pytest.mark.slow
def test_a_rewrite_without_end_is_said_although_lowering_again_has_no_end_either(tmp_path: Path) -> None:
    text = """\
from tinygrad import Tensor
x = Tensor([1.0, 2, 3, 4, 5, 6, 7, 8]).realize()
pos = Tensor([3, 1, 0, 5, 4, 4, 6, 2]).realize()
print((Tensor.arange(8) == pos).where(x, 0).sum().item())
"""
    done = run_tool("show", write(tmp_path, text), "--json", "--patches", "none", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    crash = json.loads(done.stdout)["error"]["crash"]
    assert (crash["kind"], crash["stage"]) == ("waits", "codegen")


@pytest.mark.slow
def test_a_kernel_without_a_program_is_shown_with_the_others(tmp_path: Path) -> None:
    text = CRASHES.replace("best.realize()", "other = (grid + 1).sum()")
    write(tmp_path, text)
    done = run_tool("show", "snippet.py", "--json", "--patches", "none", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    last = json.loads(done.stdout)["schedules"][-1]
    assert sorted(kernel["failed"] is None for kernel in last["kernels"]) == [False, True]


UNRENDERED = """\
from tinygrad import Tensor, dtypes
x = (Tensor.empty(8, dtype=dtypes.double) + 1).realize()
"""


@pytest.mark.parametrize("command", ["show", "why", "lint", "check"])
def test_a_kernel_that_cannot_be_rendered_is_said(command: str, tmp_path: Path) -> None:
    done = run_tool(command, write(tmp_path, UNRENDERED), "--target", "wgsl", cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr.startswith(
        "vmapdbg: kernel #0 of schedule 0, target wgsl, has no program: KeyError: dtypes.double"
    )
    if command == "lint":
        left = "0 findings in 1 kernel, target wgsl; 1 not looked at: 1 kernel (it has no program)"
        assert left in " ".join(done.stdout.split())


LOST = """\
from tinygrad import Tensor
grid = Tensor.ones(3, 4).contiguous().realize()
grid[1:2].assign(Tensor.full((1, 4), 5.0))
print(grid.sum().item())
"""
KEPT = """\
from tinygrad import Tensor
grid = Tensor.ones(3, 4).contiguous().realize()
held = grid[1:2].assign(Tensor.full((1, 4), 5.0))
before = grid.sum().item()
held.realize()
grid[0:1].assign(Tensor.full((1, 4), 2.0)).realize()
later = grid.assign(grid + 1)
twice = later * 2
del later
print(before, twice.tolist(), grid.sum().item())
"""
CUT = """\
from tinygrad import Tensor
w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
v = Tensor([1.0, 2.0, 3.0], requires_grad=True)
(w.clone() * v.detach() + v).square().sum().backward()
print(w.grad.tolist(), v.grad.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("tinygrad", [["--patches", "none"], ["--tinygrad", "0.12.0"]])
@pytest.mark.parametrize(("text", "code"), [(LOST, "VD206"), (CUT, "VD207")])
def test_what_goes_wrong_in_the_graph_itself_is_a_finding(
    text: str, code: str, tinygrad: list[str], tmp_path: Path
) -> None:
    line = next(n for n, one in enumerate(text.splitlines(), 1) if ".assign(" in one or ".backward()" in one)
    status, document = check_json(text, tmp_path, *tinygrad)
    assert (status, [(one["code"], one["line"]) for one in document["findings"]]) == (1, [(code, f"snippet.py:{line}")])


@pytest.mark.slow
def test_a_write_that_a_tensor_still_has_is_not_lost(tmp_path: Path) -> None:
    status, document = check_json(KEPT, tmp_path, "--patches", "none")
    assert (status, document["findings"]) == (0, [])


@pytest.mark.slow
def test_bisect_makes_a_hang_smaller(tmp_path: Path) -> None:
    text = HANGS.replace("total = ", "wide = ").replace(".sum(1)", "").replace("total.realize()", "")
    write(tmp_path, f"{text}(wide - wide.sum(1, keepdim=True)).realize()\n")
    options = ["--by", "crash", "--runs", "4", "--reduce", "-o", "small.py", "--seconds", "10"]
    done = run_tool("bisect", "snippet.py", *options, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "EndlessRewrite: tinygrad rewrites a graph without end" in done.stdout
    assert "wrote small.py" in done.stderr


# *** the process dies

BEGINS = "from tinygrad import Tensor\n(Tensor.empty(12) + 1).realize()\n"
# a kernel of tinygrad 0.12.0 that leaves its memory: every launch from here on is one
FAULTS = """
import ctypes
import tinygrad.engine.realize as realize
realize.CompiledRunner.__call__ = lambda *arguments, **options: ctypes.string_at(0)
(Tensor.empty(15) * 3).realize()
"""
DEATHS = {
    "fault": ("import ctypes; ctypes.string_at(0)\n", "was killed by SIGSEGV"),
    "exit": ("import os; os._exit(3)\n", "ended the process with status 3"),
    "kill": ("import os; os.kill(os.getpid(), 9)\n", "was killed by SIGKILL"),
}
TREES = [[], ["--tinygrad", "0.12.0"]]


@pytest.mark.parametrize("how", DEATHS)
def test_what_was_captured_before_is_shown(how: str, tmp_path: Path) -> None:
    ends, words = DEATHS[how]
    done = run_tool("show", write(tmp_path, BEGINS + ends), "--json", cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr == f"vmapdbg: snippet.py {words}\n"
    capture = json.loads(done.stdout)
    assert [len(schedule["kernels"]) for schedule in capture["schedules"]] == [1]
    assert capture["error"] == {
        "type": "ChildDied",
        "message": f"snippet.py {words}",
        "line": "snippet.py:2",
        "crash": None,
    }


@pytest.mark.parametrize("tree", TREES, ids=" ".join)
def test_the_launch_that_it_died_in_is_named(tree: list[str], tmp_path: Path) -> None:
    done = run_tool("show", write(tmp_path, BEGINS + FAULTS), "--json", *tree, cwd=tmp_path)
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert "was killed by SIGSEGV while launch 0 of its last schedule ran, kernel E_" in error["message"]
    assert error["line"] == "snippet.py:7"


@pytest.mark.slow
def test_a_snippet_that_is_stopped_shows_what_it_had(tmp_path: Path) -> None:
    # the timeout is far longer than the schedule takes: how long that is decides nothing here
    text = BEGINS + "import time\nopen('ready', 'w').close()\ntime.sleep(600)\n"
    done = run_tool("show", write(tmp_path, text), "--json", "--timeout", "20", cwd=tmp_path)
    assert done.returncode == 4
    assert (tmp_path / "ready").exists()
    capture = json.loads(done.stdout)
    assert len(capture["schedules"]) == 1
    assert capture["error"]["message"] == "snippet.py did not end within 20 seconds and was stopped (--timeout)"


def test_nothing_is_left_of_a_snippet_that_ends_well(tmp_path: Path) -> None:
    """Its own children are all that it sees: waiting for the last of them ends."""
    text = BEGINS + "import os\nos.fork() or os._exit(5)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    done = run_tool("show", write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("5\n")


def test_a_process_that_the_snippet_forks_reports_nothing(tmp_path: Path) -> None:
    ends = "import os\nif os.fork() == 0:\n  (Tensor.empty(9) + 1).realize()\n  os._exit(0)\nos.wait()\n"
    ends += "x = Tensor.empty(4) + 1\n"
    done = run_tool("show", write(tmp_path, BEGINS + ends), "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert [len(schedule["kernels"]) for schedule in json.loads(done.stdout)["schedules"]] == [1, 1]


def test_what_ran_before_is_checked(tmp_path: Path) -> None:
    ends, words = DEATHS["exit"]
    text = "from tinygrad import Tensor\n(Tensor([1.0, 2.0]) + 1).realize()\n(Tensor([4.0]) * 3).realize()\n"
    done = run_tool("check", write(tmp_path, text + ends), cwd=tmp_path)
    assert done.returncode == 4
    assert done.stdout.startswith("snippet.py  2 outputs compared, none wrong, until the snippet failed\n")
    assert done.stderr == f"vmapdbg: snippet.py {words}\n"


WAITS = """
import os, signal
from tinygrad import Tensor
heard = []
signal.signal(signal.SIGCHLD, {handler})
Tensor.ones(4).contiguous().realize()
try:
    while True:
        os.wait()
except ChildProcessError:
    print("no child", heard)
(Tensor.ones(3).contiguous() + 1).realize()
"""


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "signal.SIG_DFL", "lambda *_: heard.append(1)"])
def test_the_program_has_no_child_of_ours(handler: str, tmp_path: Path) -> None:
    # clang would be a child of tinygrad
    name = write(tmp_path, WAITS.format(handler=handler))
    done = run_tool("show", name, "--timeout", "60", cwd=tmp_path, DEV="PYTHON")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no child []" in done.stdout
    assert "2 schedules" in done.stdout


def test_a_tool_that_is_killed_leaves_no_child_in_a_c_call(tmp_path: Path) -> None:
    """`PyDLL` keeps the interpreter's lock: no thread of the child runs while it sleeps."""
    (tmp_path / "sleeps.py").write_text(
        "import ctypes, os\nopen('pid', 'w').write(str(os.getpid()))\nctypes.PyDLL(None).sleep(60)\n", encoding="utf-8"
    )
    tool = subprocess.Popen([sys.executable, "-P", "-m", "vmapdbg", "show", "sleeps.py"], cwd=tmp_path)
    try:
        pid = tmp_path / "pid"
        wait_until(lambda: pid.exists() and pid.read_text() != "", "the program never started")
    finally:
        tool.kill()
        tool.wait()
    child = int(pid.read_text())
    wait_until(lambda: not is_running(child), "the child goes on")


COMPILES = """import tinygrad.renderer.cstyle as cstyle
from tinygrad import Tensor

render = cstyle.CStyleLanguage.render
x = Tensor([1.0, 2.0]).realize()
cstyle.CStyleLanguage.render = lambda *arguments: render(*arguments).replace("+1.0f", "+oops(1.0f", 1)
(x + 1).realize()
"""


def test_what_the_compiler_says_of_which_line(tmp_path: Path) -> None:
    status, document = check_json(COMPILES, tmp_path, "--patches", "none")
    refusal = document["schedules"][-1]["crash"]["refusal"]
    assert status != 0
    assert "expected ')'" in refusal["message"] or "oops" in refusal["message"]
    assert "oops(1.0f" in refusal["line"]
    (finding,) = document["findings"]
    assert f"the compiler says: {refusal['message']}, in line {refusal['number']} of the source" in finding["message"]


# *** what the program does to Python

STRANGE = {
    "str-raises": ("class E(Exception):\n  def __str__(self): raise ValueError('no')\nraise E\n", 3),
    "base-exception": ("class Ends(BaseException): pass\nraise Ends('ended')\n", 3),
    "generator-exit": ("raise GeneratorExit\n", 3),
    "class-raises": ("class X:\n  @property\n  def __class__(self): raise RuntimeError\nx = X()\n", 0),
    "repr-hash-raise": (
        "class X:\n  def __hash__(self): raise RuntimeError\n  __repr__ = __eq__ = __hash__\nx = X()\n",
        0,
    ),
    "low-recursion-limit": ("import sys; sys.setrecursionlimit(60)\n", 0),
    "deleted-folder": ("import os; os.rmdir(os.getcwd())\n", 0),
}


@pytest.mark.parametrize(
    ("how", "tree"), one_of([*((how, TREES[0]) for how in STRANGE), ("deleted-folder", TREES[1])], 2)
)
def test_the_tool_outlives_what_a_program_does_to_python(how: str, tree: list[str], tmp_path: Path) -> None:
    text, status = STRANGE[how]
    (tmp_path / "work").mkdir()
    name = write(tmp_path, BEGINS + f"left = Tensor.empty(5) * 2\n{text}")
    done = run_tool("show", f"../{name}", "--json", *tree, cwd=tmp_path / "work")
    assert done.returncode == status, done.stderr
    assert "vmapdbg" not in done.stderr
    # what ran, and unless the program failed, what it left lazy
    assert len(json.loads(done.stdout)["schedules"]) == (1 if status else 2)


AGAIN = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "tinygrad"]:
    del sys.modules[name]
from tinygrad import Tensor
print((Tensor([1.0, 2.0]) + 1).tolist())
"""


@pytest.mark.parametrize("tree", one_of([[], ["--tinygrad", "0.13.0"]], 2), ids=" ".join)
def test_a_second_copy_of_tinygrad_is_not_passed_over(tree: list[str], tmp_path: Path) -> None:
    name = write(tmp_path, BEGINS + AGAIN)
    done = run_tool("show", name, "--json", *tree, cwd=tmp_path)
    assert done.returncode == 0
    assert [len(schedule["kernels"]) for schedule in json.loads(done.stdout)["schedules"]] == [1]
    why = "a second copy of tinygrad is not observed: the program imports tinygrad again"
    assert done.stderr == f"[2.0, 3.0]\nvmapdbg: {why}\n"
    checked = run_tool("check", name, "--strict", *tree, cwd=tmp_path)
    assert checked.returncode == 1
    said = " ".join(checked.stdout.split())
    assert "1 output compared, none wrong, 1 value computed of memory that nothing has written; " in said
    assert f"; 1 not compared: 1 process ({why})" in said


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    name = write(tmp_path, BEGINS)
    (tmp_path / "gone").mkdir()
    command = "rmdir ../gone && exec $INTERPRETER -P -m vmapdbg show ../" + name
    done = run_command("sh", "-c", command, cwd=tmp_path / "gone", INTERPRETER=sys.executable)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vmapdbg: the working directory has been deleted\n"


def test_a_capture_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    name = write(tmp_path, BEGINS)
    # files have at most 2 KiB, so that the disk seems to be full; Python would keep halves of compiled modules
    limited = "ulimit -f 2 && exec $INTERPRETER -P -m vmapdbg show " + name
    settings = {"INTERPRETER": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", "DEV": "PYTHON", "CACHELEVEL": "0"}
    done = run_command("bash", "-c", limited, cwd=tmp_path, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    folder = tempfile.gettempdir()
    said = f"vmapdbg: cannot write what snippet.py did to {folder}: is it full? TMPDIR can name another folder\n"
    assert done.stderr == said
