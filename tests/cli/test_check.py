"""`check` and `bisect` as they are typed: they find the bugs of the samples, and leave nothing behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from lanes import one_of
from tool import ROOT, RunSample, run_tool, write

SAMPLES = ROOT / "samples"
LOST, XSUM, UNCLOSED = (str(SAMPLES / name) for name in ("lost_range.py", "xsum.py", "unclosed_range.py"))


FAULTY = {
    "lost_range.py": ("all,-ambient-ranges", "along axis 0 all 3 slices are the last one", "ambient range rm1"),
    "nested_jvp.py": ("all,-nested-ranges", "along axis 1 all 5 slices are the last one", "ambient range rm2"),
    "spjacobian_pattern.py": ("all,-ambient-ranges", "along axis 0 all 4 slices are the last one", "ambient range rm1"),
}


@pytest.mark.parametrize(
    "sample", [pytest.param(name, marks=() if name == "lost_range.py" else pytest.mark.slow) for name in FAULTY]
)
def test_the_bug_of_a_sample_is_found(sample: str, run_sample: RunSample) -> None:
    patches, *told = FAULTY[sample]
    done = run_sample("check", f"samples/{sample}", "--patches", patches)
    assert done.returncode == 1, done.stderr
    text = " ".join(done.stdout.split())
    for part in (*told, "first wrong buffer", "patches off:"):
        assert part in text
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


def test_json_has_the_contract_and_the_finding(run_sample: RunSample) -> None:
    done = run_sample("check", "samples/lost_range.py", "--json", "--patches", "all,-ambient-ranges")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    assert data["patches"]["ambient-ranges"] is False
    assert [f["code"] for f in data["findings"]] == ["VD201"] * 2
    assert data["findings"][0]["kernel"] == "r_3_2_2_2"
    assert data["findings"][0]["line"].endswith("lost_range.py:28")
    wrong = [s for s in data["schedules"] if any(o["comparison"]["status"] == "wrong" for o in s["outputs"])]
    assert [s["schedule"] for s in wrong] == [2, 3]


@pytest.mark.slow
def test_a_schedule_that_fails_with_the_patches_is_reported(tmp_path: Path) -> None:
    done = run_tool("check", UNCLOSED, "--patches", "all,-close-ranges", cwd=tmp_path)
    assert done.returncode == 3
    text = " ".join(done.stdout.split())
    assert "1 schedule failed" in text
    assert "should be" in text


def test_the_snippet_runs_once_and_its_random_numbers_are_the_same(tmp_path: Path) -> None:
    text = (
        "from tinygrad import Tensor\nopen('ran', 'a').write('x')\n"
        "a = Tensor.rand(40).realize()\nb = (Tensor.rand(40) + a).realize()\n"
        "c = a.contiguous()\nc.assign(c + b).realize()\n"
        "print((c * 2).sum().item())\n"
    )
    done = run_tool("check", write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "ran").read_text(encoding="utf-8") == "x"


REPLAYS = """
from tinygrad import Tensor, TinyJit
from tinygrad.engine import jit

@TinyJit
def add_to(x, y):
  x.assign(x + y)
  return (x[1:] * 2).realize(x)

@TinyJit
def twice(x):
  return (x + 1).realize() * 2

weight, count = (Tensor.full((3,), value).contiguous().realize() for value in (1.0, 2.0))

@TinyJit
def train(x):
  loss = (x * weight).sum()
  weight.assign(weight - 0.5 * x).realize()
  count.assign(count + weight).realize()
  return (loss + count.sum()).realize()

@TinyJit
def double(x):
  return (x * 2).realize()

def call(f, *values):
  return f(*[Tensor.full((3,), value).contiguous().realize() for value in values])

for i in range(6): call(add_to, i, 3)
for i in range(4): call(twice, i)
for i in range(3): call(train, i)
jit.get_input_replace = lambda *_: {}  # the kernels that are captured from here on keep their inputs
for i in range(3): call(double, i)
"""


def test_replays_of_tinyjit_are_compared(tmp_path: Path) -> None:
    done = run_tool("check", write(tmp_path, REPLAYS), "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    # eagerly, too, the loss of `train` is computed after the write to the weight that it reads
    early, finding = data["findings"]
    assert (early["code"], "should be 13.5" in early["message"]) == ("VD209", True)
    assert "replay 1 by TinyJit: 3 of 3 elements are wrong, the first at [0]: 2, should be 4" in finding["message"]
    replays = [check for check in data["schedules"] if check["replay"] is not None]
    # add_to, twice (2 schedules), train (3), double
    assert [check["replay"] for check in replays] == [1, 2, 3, 4, 1, 2, 1, 2, 1, 1, 1, 1]
    assert all(check["outputs"] for check in replays)
    assert not any(check["unchecked"] for check in data["schedules"])


ITEMS = """
from tinygrad import Tensor

def make(): return Tensor.arange(24).float().reshape(2, 4, 3).contiguous().realize()
right = make()
right[:, [0, 2]] = 1.0
right[1, 1:3, ::-1] = Tensor([1.0, 2.0, 3.0])
right[None, 0] = 4.0
right[-1, -1, -1] += 5.0
right.realize()
wrong = make()
wrong[0, [0, 2]] = 99.0
"""


def test_an_item_assignment_that_writes_outside_of_its_index_is_reported(tmp_path: Path) -> None:
    """tinygrad 0.12.0 has a mask for the rows that the list chooses, and forgets where the other axes were cut."""
    done = run_tool("check", write(tmp_path, ITEMS), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    text = " ".join(done.stdout.split())
    assert "1 of 12 outputs wrong" in text
    assert "snippet.py:12 assigned buffer 0, of which only what the index chooses is to change, (2, 4, 3) float" in text
    assert "6 of 24 elements wrong first at [1, 0, 0]: 99.0, should be 12.0" in text
    assert "its kernels write what the graph asks for: `Tensor.__setitem__` makes a wrong graph" in text


KEPT_OUTPUT = """
from tinygrad import Tensor, TinyJit

@TinyJit
def shift(window, item):
  moved = window[1:].cat(item)
  return moved.contiguous(), moved[:1].contiguous()

@TinyJit
def grow(window):
  return (window * 2 + 1).contiguous()

window = Tensor([0, 1, 2]).contiguous().realize()
for i in range(5):
  window, first = shift(window, Tensor([10 + i]).contiguous().realize())
grown = Tensor([0, 1, 2]).contiguous().realize()
for i in range(5):
  grown = grow(grown)
"""


def test_a_replay_that_writes_over_its_inputs_is_reported(tmp_path: Path) -> None:
    """What `shift` returns is its next input, in the memory that it writes; `grow` is right all the same."""
    done = run_tool("check", write(tmp_path, KEPT_OUTPUT), "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert [(found["code"], found["line"]) for found in findings] == [("VD208", "snippet.py:15")]
    assert "so in 3 of the 3 replays compared: 1, 2, 3" in findings[0]["message"]
    overwritten = "it is the value from reading input 0 of the function after the replay has overwritten it"
    assert overwritten in findings[0]["message"]


def test_a_fault_that_several_schedules_repeat_is_one_finding(tmp_path: Path) -> None:
    lines = ["from tinygrad import Tensor", "for i in range(4):", "  x = Tensor([[1.0, 2.0], [3.0, 4.0]]) + i"]
    write(tmp_path, "\n".join([*lines, "  x.relu().unsqueeze(0).expand(2, 2, 2).flatten().sum().realize()"]))
    done = run_tool("check", "snippet.py", "--patches", "none", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    wrong = [one["schedule"] for one in document["schedules"] if one["outputs"][0]["comparison"]["status"] == "wrong"]
    (finding,) = document["findings"]
    assert (len(wrong), done.returncode) == (4, 1)
    assert f"so in 4 of the 4 schedules of this line: {', '.join(map(str, wrong))}" in finding["message"]
    text = run_tool("check", "snippet.py", "--patches", "none", cwd=tmp_path).stdout
    assert text.startswith("snippet.py  4 of 5 outputs wrong")
    assert text.count("elements are wrong") + text.count("  output 0 () float: wrong") == 1


BAD = {"loops.py": (["--timeout", "2"], 4, "did not end within 2 seconds"), "dies.py": ([], 4, "was killed by SIGKILL")}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text("while True: pass\n", encoding="utf-8")
    (tmp_path / "dies.py").write_text("import os\nos.kill(os.getpid(), 9)\n", encoding="utf-8")
    options, code, words = BAD[name]
    done = run_tool("check", name, *options, cwd=tmp_path)
    assert done.returncode == code
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_failed_snippet_shows_its_own_traceback(tmp_path: Path) -> None:
    done = run_tool(
        "check", write(tmp_path, "from tinygrad import Tensor\nTensor([1.0]).tolist()\n1 / 0\n"), cwd=tmp_path
    )
    assert done.returncode == 3
    assert "ZeroDivisionError" in done.stderr
    assert "vmapdbg/" not in done.stderr


# *** bisect


@pytest.mark.slow
def test_bisect_finds_the_patch(tmp_path: Path) -> None:
    done = run_tool("bisect", LOST, "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["removed"]["sets"] == [["ambient-ranges"]]
    assert data["removed"]["exact"] is True
    names = [outcome["name"] for outcome in data["outcomes"]]
    assert {tried["outcome"] for tried in data["tried"]} == set(names)
    assert "running" in done.stderr


@pytest.mark.slow
def test_bisect_by_crash_and_the_remembered_snippet(tmp_path: Path) -> None:
    done = run_tool("bisect", UNCLOSED, "--by", "crash", cwd=tmp_path)
    assert done.returncode == 1
    assert "close-ranges" in done.stdout
    again = run_tool("bisect", "--by", "crash", "--patches", "close-ranges", cwd=tmp_path)
    assert "unclosed_range.py" in again.stderr
    assert "by crash" in " ".join(again.stdout.split())


def test_bisect_without_a_difference_exits_zero(tmp_path: Path) -> None:
    done = run_tool("bisect", XSUM, "--patches", "close-ranges", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "no set of patches that was tried changes the outcome" in done.stdout


@pytest.mark.slow
def test_reduced_snippet_still_shows_it(tmp_path: Path) -> None:
    """What --reduce writes runs by itself, is much smaller, and shows the same bug."""
    options = ["--by", "crash", "--patches", "close-ranges", "--reduce", "-o", "small.py", "--seconds", "30"]
    done = run_tool("bisect", UNCLOSED, *options, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "wrote small.py" in done.stderr
    text = (tmp_path / "small.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 20
    assert run_tool("show", "small.py", "--patches", "close-ranges", cwd=tmp_path).returncode == 0
    broken = run_tool("show", "small.py", "--patches", "none", cwd=tmp_path)
    assert broken.returncode == 3
    assert "must be AFTER or BUFFER" in broken.stderr
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".small")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "snippet", "patches", "without"),
    [("values", LOST, "ambient-ranges,close-ranges", "close-ranges"), ("kernels", XSUM, "fuse-broadcast", "none")],
)
def test_reduced_snippet_shows_each_kind(kind: str, snippet: str, patches: str, without: str, tmp_path: Path) -> None:
    # what it has after 3 seconds may be large or small: any of it must show the difference
    options = ["--by", kind, "--patches", patches, "--reduce", "-o", "small.py", "--seconds", "3"]
    done = run_tool("bisect", snippet, *options, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    first, second = (tmp_path / "small.py").read_text(encoding="utf-8").splitlines()[:2]
    assert "Reduced from" in first
    differ = f"# Its {kind} differ with --patches {patches} and --patches {without}."
    if kind == "values":
        differ = f"# Its values are right with --patches {patches}, and wrong with --patches {without} (VD201)."
    assert second == differ
    shown = [run_tool("show", "small.py", "--json", "--patches", spec, cwd=tmp_path) for spec in (patches, without)]
    facts = [find_facts(kind, done.stdout) for done in shown]
    assert facts[0] != facts[1]


WRONG_ALONE = """
from tinygrad import Tensor
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
y = (x * 3 + 1).sqrt()
print(y.relu().unsqueeze(0).expand(2, 2, 3).flatten().sum().item())
"""
CRASHES_ALONE = """
from tinygrad import Tensor, dtypes
x = Tensor.eye(4, dtype=dtypes.half)
y = x - x.max(1, keepdim=True)
print((y @ y.transpose(-1, -2) + 1).numpy())
"""


# wrong under a switch of tinygrad alone, which the snippet sets itself
SWITCHED = """
import os
os.environ["PCONTIG"] = "2"
from tinygrad import Tensor
x = Tensor([[True, False], [True, False]]).realize()
y = Tensor([[1, 2], [3, 4]]).realize() * 3
print((x.where(y, 0).sum(1) + Tensor(0).reshape(1, 1).expand(2, 2).sum(1)).tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told", "status"),
    [
        (SWITCHED, "os.environ['PCONTIG'] = '2'", 3),
        (WRONG_ALONE, "# Its values differ from the numpy reference (VD201).", 1),
        (CRASHES_ALONE, "# It ends with CalledProcessError.", 3),
    ],
)
def test_what_goes_wrong_with_every_set_of_patches_is_reduced_alone(
    text: str, told: str, status: int, tmp_path: Path
) -> None:
    options = ["--runs", "2", "--patches", "none", "--reduce", "-o", "small.py", "--seconds", "10"]
    done = run_tool("bisect", write(tmp_path, text), *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote small.py" in done.stderr
    small = (tmp_path / "small.py").read_text(encoding="utf-8")
    assert told in small.splitlines()
    assert run_tool("check", "small.py", "--patches", "none", cwd=tmp_path).returncode == status


@pytest.mark.slow
def test_a_program_that_is_right_with_every_set_of_patches_is_not_reduced(tmp_path: Path) -> None:
    snippet = write(tmp_path, "from tinygrad import Tensor\nprint((Tensor([1.0, 2.0]) + 1).tolist())\n")
    options = ["--runs", "2", "--patches", "none", "--reduce", "-o", "small.py"]
    done = run_tool("bisect", snippet, *options, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "nothing was reduced: neither does tinygrad fail, nor is a value wrong" in done.stderr
    done = run_tool("bisect", snippet, "--by", "kernels", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert "nothing was reduced: all sets of patches are alike by kernels" in done.stderr
    assert not (tmp_path / "small.py").exists()


SEVERAL = """
import sys
from beside import make
from tinygrad import Tensor, nn

class Model:
    def __init__(self):
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def __call__(self, x):
        return self.second(self.first(x).relu()).softmax()

def main(count):
    model = Model()
    for step in range(count):
        print(step, model(Tensor.rand(2, 4)).mean().item())
    x = make()
    y = (x * 3 + 1).sqrt().relu()
    total = y.unsqueeze(0).expand(2, 2, 3).flatten().sum()
    print(total.item())
    return total

if __name__ == "__main__":
    main(int(sys.argv[1]))
"""
BESIDE = """
from tinygrad import Tensor
def make():
    return Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
"""


@pytest.mark.slow
def test_the_program_as_written_becomes_small_with_its_arguments_and_what_it_imports(tmp_path: Path) -> None:
    write(tmp_path, BESIDE, "beside.py")
    options = ["--runs", "2", "--patches", "none", "--reduce", "-o", "small.py", "--seconds", "60"]
    done = run_tool("bisect", write(tmp_path, SEVERAL), *options, "--json", "--", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    reduced = json.loads(done.stdout)["reduced"]
    small = (tmp_path / "small.py").read_text(encoding="utf-8")
    assert small == reduced["text"]
    assert (reduced["before"], reduced["is_lost"], reduced["reason"]) == (19, False, None)
    assert reduced["after"] <= 12
    assert "nn" not in small
    head = small.splitlines()[:3]
    assert head[0].startswith("# Reduced from snippet.py: 19 lines to ")
    assert head[2].startswith("# vmapdbg check small.py --patches none")
    assert run_tool(*head[2].split()[2:], cwd=tmp_path).returncode == 1


@pytest.mark.slow
def test_ctrl_c_writes_the_smallest_program_until_then(tmp_path: Path) -> None:
    lines = "\n".join(f"x{i} = Tensor([{i}.0]) + 1" for i in range(40))
    # each of a hundred programs takes a while, also on a fast machine
    write(tmp_path, "import time\nfrom tinygrad import Tensor\ntime.sleep(0.5)\n", "slow.py")
    write(tmp_path, f"{WRONG_ALONE.replace('from tinygrad', 'from slow')}\n{lines}\n")
    options = ["--runs", "2", "--patches", "none", "--reduce", "-o", "small.py", "--seconds", "600"]
    command = [sys.executable, "-m", "vmapdbg", "bisect", "snippet.py", *options]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not any("trials" in Path(f"/proc/{pid}/cmdline").read_text() for pid in children.read_text().split()):
        time.sleep(0.1)
    time.sleep(10)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, "wrote small.py" in said, "interrupted" in said) == (130, True, True), said
    assert run_tool("check", "small.py", "--patches", "none", cwd=tmp_path).returncode == 1


def find_facts(kind: str, text: str) -> object:
    capture = json.loads(text)
    return [[kernel["key"] for kernel in schedule["kernels"]] for schedule in capture["schedules"]]


# *** the numpy reference

# programs without a wrong value, without their import: each is compared whole, unless a line says what is left out
RIGHT = {
    "a sample with vmap": Path(LOST).read_text(encoding="utf-8"),
    # stock makes a store for each part of the padded axis, all with the same loops: code generation never ends
    "rows of padded tensors": """
padded = Tensor([[[3.0, 1.0, 2.0, 5.0, 4.0, 0.0]] * 4] * 4).realize().pad(((2, 2), (0, 0), (0, 0)))
print(padded.argmax(2).tolist())
print((padded - padded.max(2, keepdim=True)).sum(2).tolist())
row = Tensor([[1.5, -0.5]]).realize().pad(((2, 0), (0, 0)))
print(row.gather(1, row.argsort(1)).tolist())
product = Tensor.arange(4).float().reshape(2, 2) @ Tensor.ones(2, 3)
print(product.scatter(0, product.argsort(0), product + 1).tolist())
""",
    "many kinds of values": """
sharded = (Tensor.ones(4).shard(("CPU:0", "CPU:1"), 0) + 1).realize()
symbolic = Tensor([[1, 2], [3, 4]]).realize()[:, : Variable("n", 1, 2).bind(1)].sum().realize()
half = (Tensor.arange(6).half() / 7).softmax().realize()
bfloat16 = (Tensor.arange(6).bfloat16() * 1.3).sum().realize()
random, more_random = (Tensor.rand(3, 4) + 0).realize(), (Tensor.rand(4) * 2).realize()
written = Tensor.ones(2).contiguous().realize()
written.assign(written + 1)
between = written * 2
written.assign(written + 5)
(written + between).realize()
""",
    "a lazy tensor": "out = Tensor([1.0, 2.0]) + 1\n",
    # what is left when a sum cancels is rounding, and differs with the order of the sum
    "a sum that cancels": """
Tensor.manual_seed(1)
x = Tensor.randn(64, 64)
print((x - x.mean(0)).sum().item())
""",
    "undefined": 'x = (Tensor([1.0, 3e9]).realize().cast("int") + 1).realize()\n',
}
# what is left over of them
LEFT = {"undefined": "1 element: C or tinygrad leave them undefined"}


@pytest.mark.parametrize("name", one_of(RIGHT, 2))
def test_right_values_are_right_for_the_reference(name: str, tmp_path: Path) -> None:
    snippet = write(tmp_path, f"from tinygrad import Tensor, Variable\n{RIGHT[name]}")
    done = run_tool("check", snippet, "--strict", cwd=tmp_path)
    assert done.returncode == (name in LEFT), done.stdout + done.stderr
    assert ("all right" in done.stdout) != (name in LEFT)
    assert "compared with the numpy reference" in done.stdout
    assert "".join(re.findall("not checked: (.*)", done.stdout)) == LEFT.get(name, "")


# the first schedule is made by `schedule`, and its kernels run without `realize`
UNSEEN = """from tinygrad import Tensor
from tinygrad.engine.realize import run_schedule
items = (Tensor([1.0, 2.0]).realize() + 1).schedule()
run_schedule(list(items))
for item in items:
  item.run({})
"""


@pytest.mark.parametrize("command", one_of(["show", "lint", "diff --baseline", "run --check"], 4))
def test_with_strict_what_is_left_over_is_a_failure(command: str, tmp_path: Path) -> None:
    name, *options = command.split()
    snippet = write(tmp_path, UNSEEN)
    assert run_tool(name, *options, snippet, cwd=tmp_path).returncode == 0
    assert run_tool(name, *options, "--strict", snippet, cwd=tmp_path).returncode == 1
    snippet = write(tmp_path, "from tinygrad import Tensor\nprint((Tensor([1.0, 2.0]) + 1).tolist())\n")
    assert run_tool(name, *options, "--strict", snippet, cwd=tmp_path).returncode == 0


def test_launches_that_no_schedule_has_are_counted(tmp_path: Path) -> None:
    snippet = write(tmp_path, UNSEEN)
    assert "3 launches, 1 shown" in run_tool("show", snippet, "--save", "run.json", cwd=tmp_path).stdout
    account = json.loads(run_tool("lint", "--format", "json", "run.json", cwd=tmp_path).stdout)["account"]
    assert sum(account["seen"].values()) == 3
    assert account["compared"] == {"launches": 1, "other launches": 0}
    assert "no finding" not in run_tool("lint", "run.json", cwd=tmp_path).stdout


def test_the_report_says_what_cannot_be_compared(tmp_path: Path) -> None:
    text = "from tinygrad import Tensor\nx = (Tensor.empty(4, device='NULL') + 1).realize()\n"
    done = run_tool("check", write(tmp_path, text), cwd=tmp_path)
    assert "NULL device" in done.stdout, done.stderr
    assert "all right" not in done.stdout.splitlines()[0]


# each is a fault of released tinygrad 0.12.0 that the patches do not change: the program and messages about it
WRONG = {
    "expanded": (
        "x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])\n"
        "x.relu().unsqueeze(0).expand(2, 2, 3).flatten().sum().realize()",
        "126.0, should be 42.0",
    ),
    "assigned": (
        "a = Tensor([1.0, 2.0]).realize()\n"
        "a.bitcast('uint').assign(Tensor([0x40400000, 0x40000000], dtype='uint')).realize()",
        "assigned buffer 0 (2,) float: 1 of 2 elements wrong first at [0]: 1.0, should",
    ),
    "stale": (
        "devices = ('CPU:0', 'CPU:1')\n"
        "buf = Tensor([1.0, 2.0], device='CPU').contiguous().realize().shard(devices, 0).realize()\n"
        "stale = buf.to('CPU')\n"
        "buf.assign(Tensor.full((2,), 9.0, device='CPU').shard(devices, 0).contiguous().realize())\n"
        "Tensor.realize(buf, stale)",
        "output 1 (2,) float: 2 of 2 elements wrong first at [0]: 9.0, should be 1.0",
        "reading an assigned buffer after the write to it; it should be read before the write",
        "by which rewrite: not known for values that are spread over several devices",
    ),
}


def test_what_stock_tinygrad_does_wrong_is_found(tmp_path: Path) -> None:
    """All of it in one program: what is wrong in one schedule keeps nothing of another one from being found."""
    texts = "\n".join(text for text, *_ in WRONG.values())
    snippet = write(tmp_path, f"from tinygrad import Tensor\n{texts}\n")
    done = run_tool("check", snippet, "--patches", "none", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert [text for _, *told in WRONG.values() for text in told if text not in said] == []


BROKEN = {
    "code generation": (
        """
        import tinygrad.codegen as codegen
        lower = codegen.full_rewrite_to_sink
        wrong = lambda sink: sink.substitute({u: u.const_like(3.5) for u in sink.toposort() if u.arg == 2.5})
        codegen.full_rewrite_to_sink = lambda *asked, **options: wrong(lower(*asked, **options))
        """,
        "the kernel as scheduled computes it right, its linear program the same wrong values: "
        "code generation made the fault",
    ),
    "renderer": (
        """
        from tinygrad.renderer import cstyle
        render = cstyle.ClangRenderer.render
        cstyle.ClangRenderer.render = lambda self, uops: render(self, uops).replace("2.5f", "3.5f")
        """,
        "the kernel as scheduled and its linear program compute it right: "
        "the renderer, the compiler or the machine made the fault",
    ),
}


@pytest.mark.parametrize("part", BROKEN)
def test_faults_of_code_generation_and_of_later_stages_are_distinguished(part: str, tmp_path: Path) -> None:
    plant, told = BROKEN[part]
    program = (
        f"from tinygrad import Tensor{textwrap.dedent(plant)}(Tensor([1.0, 2.0, 3.0]).realize() * 2.5).realize()\n"
    )
    done = run_tool("check", write(tmp_path, program), "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert told in report["findings"][0]["message"]
    found = [buffer["fault"] for check in report["schedules"] for buffer in check["buffers"] if buffer["fault"]]
    assert [fault["made_by"] for fault in found] == [{"renderer": "compiler"}.get(part, "codegen")]


# a scope by hand, whose RANGE has the id -1, beside two devices; a loop of that id
SCOPE_AND_DEVICES = """
    from tinygrad import Tensor
    from tinygrad.uop.ops import AxisType, Ops, UOp
    x = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).realize()
    scope = UOp.range(3, -1, AxisType.LOOP)
    inside = ((x.vmapin((scope, UOp.const(scope.dtype, 0))) + 1).contiguous() * 2).sum().vmapout((scope,))
    shards = Tensor([1.0, 2.0, 3.0, 4.0]).shard(("CPU:0", "CPU:1"), 0).realize()
    doubled = ((shards * 2 + 1).contiguous() * FACTOR).contiguous()
    Tensor.realize(inside, doubled.sum())
    ones = Tensor.ones(2).contiguous().realize()
    repeated = Tensor(ones.uop.reduce(UOp.range(3, -1, AxisType.OUTER), arg=Ops.ADD))
    Tensor.realize(repeated, shards - 3)
"""
# a product that a rewrite makes a sum of
CHANGED_PRODUCT = """
    from tinygrad.schedule import rangeify
    from tinygrad.uop.ops import Ops, PatternMatcher, UPat
    rule = UPat(Ops.MUL, src=[UPat.var("x"), UPat.cvar("c")]), lambda x, c: x + c if c.arg == 5.0 else None
    rangeify.symbolic = PatternMatcher([rule]) + rangeify.symbolic
"""


def test_a_scope_with_several_devices_is_not_a_wrong_value(tmp_path: Path) -> None:
    program = textwrap.dedent(SCOPE_AND_DEVICES.replace("FACTOR", "5.0"))
    done = run_tool("check", write(tmp_path, program), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all right" in done.stdout
    done = run_tool("check", write(tmp_path, textwrap.dedent(CHANGED_PRODUCT) + program), cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "first wrong buffer: CONTIGUOUS" in said, said
    assert "(2, 2) float" in said, said
    assert "not compared" not in said, said
    # `why --value` would say that it does not follow these
    assert "by which rewrite: not known for values that are spread over several devices" in said, said
    assert "why --value" not in said, said
