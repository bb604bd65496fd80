"""`check` says where numbers go wrong although tinygrad computes what the program asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lanes import one_of
from tool import run_tool, write

HEAD = """from tinygrad import Tensor, dtypes
x = Tensor([[1.0, 100.0, 3.0], [4.0, 5.0, 0.0]]).realize()
"""
# what makes the first NaN or infinity: the code on line 3 -> op, method, what it makes, of what, at which index
MADE: dict[str, tuple[str, str | None, Any, list[Any], list[int]]] = {
    "y = x.log() * 2": ("log2", "log", "-inf", [0.0], [1, 2]),
    "e = x.exp(); y = e / e.sum(-1, keepdim=True)": ("exp2", "exp", "inf", [pytest.approx(144.27, abs=0.01)], [0, 1]),
    "y = (x - 4).sqrt().sum()": ("sqrt", "sqrt", "nan", [-3.0], [0, 0]),
    "y = 1 / x": ("reciprocal", "__rtruediv__", "inf", [0.0], [1, 2]),
    "y = (x * 1e30 * 1e10).sum(1)": ("mul", "__mul__", "inf", [1e30, 1e10], [0, 0]),
    "y = (x * 700).cast(dtypes.half) + 1": ("cast", "cast", "inf", [70000.0], [0, 1]),
    "y = (x > 9).where(x, -float('inf')).softmax()": ("add", "softmax", "nan", ["-inf", "inf"], [1, 0]),
}


def check(text: str, folder: Path, *options: str, status: int) -> dict[str, Any]:
    write(folder, text)
    done = run_tool("check", "snippet.py", "--json", *options, cwd=folder)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("line", one_of(MADE, 3))
def test_the_op_that_makes_the_first_nan_or_infinity(line: str, tmp_path: Path) -> None:
    document = check(f"{HEAD}{line}\ny.realize()\n", tmp_path, status=1)
    (found,), (finding,) = document["schedules"][1]["numbers"], document["findings"]
    op, method, got, operands, index = MADE[line]
    assert (found["op"], found["method"], found["got"], found["index"]) == (op, method, got, index)
    assert found["operands"] == [one if isinstance(one, str) else pytest.approx(one) for one in operands]
    assert found["line"] == finding["line"] == "snippet.py:3"
    assert (found["outputs"], finding["code"]) == (1, "VD301")


RIGHT = """from tinygrad import Tensor
x = Tensor([[1.0, 0.0, 3.0], [4.0, 5.0, 0.0]]).realize()
keep = x > 2
# the program asks for the first infinity, as a mask; the second one does not reach the result
masked = keep.where(x, -float("inf")).realize()
masked.softmax().realize()
(x > 0).where(x.log(), 0.0).realize()
Tensor.full((3,), float("nan")).contiguous().realize()
"""


def test_numbers_that_are_asked_for_are_no_finding(tmp_path: Path) -> None:
    document = check(RIGHT, tmp_path, status=0)
    assert document["findings"] == []
    assert not any(one["numbers"] for one in document["schedules"])


TRAINS = """from tinygrad import Tensor, TinyJit
w = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()

@TinyJit
def step(x):
    w.assign((w @ x).exp())
    return w.realize()

for i in range(6):
    step(Tensor([[0.5 + i, 0.0], [0.0, 1.0]]).realize())
"""


def test_the_first_step_of_a_training_that_makes_them(tmp_path: Path) -> None:
    """The steps after it read memory that has them already: no other finding."""
    document = check(TRAINS, tmp_path, "--patches", "none", status=1)
    first, *later = [found["op"] for one in document["schedules"] for found in one["numbers"]]
    assert first == "exp2"
    assert set(later) <= {"exp2", None}
    (finding,) = document["findings"]
    assert (finding["code"], finding["line"]) == ("VD301", "snippet.py:6")
    done = run_tool("check", "snippet.py", "--patches", "none", cwd=tmp_path)
    assert "with NaN or infinity" in done.stdout.splitlines()[0] + done.stdout.splitlines()[1]
    assert "all right" not in done.stdout


# what loses the digits: the code on line 3 -> op, dtype, and the edits that keep them
LOSES: dict[str, tuple[str, str, list[str]]] = {
    "y = (x + 1e5).square().mean() - (x + 1e5).mean().square()": ("add", "float", ["double", "subtract-mean"]),
    "y = (x.half().reshape(-1, 1) * 0.001).expand(6, 8192).contiguous().sum(1, dtype=dtypes.half)": (
        "reduce add",
        "half",
        ["float"],
    ),
    "y = (x * 3.3e7 + 0.1).sin()": ("sin", "float", ["double"]),
    "y = (x * 1e-9 + 1).log()": ("log2", "float", ["double"]),
}


@pytest.mark.parametrize("line", one_of(LOSES, 2))
def test_the_op_that_loses_digits(line: str, tmp_path: Path) -> None:
    document = check(f"{HEAD}{line}\ny.realize()\n", tmp_path, status=1)
    found = [fault for one in document["schedules"] for fault in one["numbers"]]
    op, dtype, edits = LOSES[line]
    assert [(one["kind"], one["op"], one["dtype"]) for one in found] == [("lost-digits", op, dtype)]
    assert found[0]["digits"] < 2
    assert [edit["kind"] for edit in found[0]["edits"]] == edits
    assert all(edit["digits"] > 3 for edit in found[0]["edits"])
    assert [(one["code"], one["line"]) for one in document["findings"]] == [("VD302", "snippet.py:3")]


KEEPS = """from tinygrad import Tensor, dtypes
Tensor.manual_seed(1)
x = (Tensor.rand(4, 512).realize() + 100).realize()
((x - x.mean(1, keepdim=True)) ** 2).mean(1).realize()
x.layernorm().realize()
(x - 100).half().softmax().realize()
(x - 100).to("PYTHON").cast(dtypes.fp8e4m3).float().realize()
x.bfloat16().sum(1).realize()
# zero, but for rounding
(x - x * 1.0).realize()
(x.softmax().sum(1) - 1).realize()
# smaller than any number of its dtype
(x * -3).sigmoid().realize()
"""


def test_digits_that_stay_are_no_finding(tmp_path: Path) -> None:
    document = check(KEEPS, tmp_path, status=0)
    assert document["findings"] == []


def test_a_program_may_expect_them(tmp_path: Path) -> None:
    """`run --check` lists them, without another exit code."""
    write(tmp_path, f"{HEAD}x.log().realize()\n")
    done = run_tool("run", "--check", "snippet.py", cwd=tmp_path)
    assert done.returncode == 0
    assert "snippet.py:3  VD301 NaN or infinity" in done.stderr
    assert "all right" not in done.stderr
    document = json.loads(run_tool("run", "--check", "--json", "snippet.py", cwd=tmp_path).stdout)
    assert [(one["code"], one["number"]["op"]) for one in document["numbers"]] == [("VD301", "log2")]


LATER = """from tinygrad import Tensor
w = Tensor([1.0, 2.0]).realize()
a = w * 3
b = a.log() - 9

a.realize()
b.exp().realize()
"""


def test_a_value_keeps_its_line_if_a_part_of_it_is_realized(tmp_path: Path) -> None:
    write(tmp_path, LATER)
    document = json.loads(run_tool("show", "snippet.py", "--json", cwd=tmp_path).stdout)
    nodes = [node for one in document["schedules"] for node in one["nodes"]]
    assert {node["line"] for node in nodes if node["op"] == "LOG2"} == {"snippet.py:4"}


UNWRITTEN = """from tinygrad import Tensor
x = Tensor.empty(4, 4)
y = Tensor.empty(10, dtype="int")
part = Tensor.empty(10).contiguous()
part[0:5].assign(Tensor.ones(5)).realize()
(x + 1).sum(axis=0).realize()
(y > 0).cast("float").realize()
(part * 2).sum().realize()
"""


@pytest.mark.parametrize("options", [(), ("--tinygrad", "0.14.0")])
def test_memory_that_nothing_has_written(options: tuple[str, ...], tmp_path: Path) -> None:
    document = check(UNWRITTEN, tmp_path, *options, status=1)
    numbers = [fault for one in document["schedules"] for fault in one["numbers"]]
    found = [(one["code"], one["line"]) for one in document["findings"]]
    assert found == [("VD303", f"snippet.py:{number}") for number in (2, 3, 4)]
    assert [(one["kind"], one["method"], one["faulty"], one["total"]) for one in numbers] == [
        ("unwritten", "empty", 16, 16),
        ("unwritten", "empty", 10, 10),
        ("unwritten", "empty", 5, 10),
    ]
    assert numbers[2]["index"] == [5]


NOT_USED = """from tinygrad import Tensor
cache = Tensor.empty(2, 8, 4).contiguous().realize()
for i in range(3):
    x = Tensor([[1.0, 2.0, 3.0, 4.0]]) * (i + 1)
    cache[:, i:i+1].assign(Tensor.stack(x, x * 2).reshape(2, 1, 4)).realize()
    k, v = cache[0, :i+1], cache[1, :i+1]
    ((x @ k.T).softmax() @ v).realize()
# what is masked, what is written over, and what the tool computes by itself
mask = Tensor([True] * 3 + [False] * 5).reshape(8, 1)
mask.where(cache[0], 0.0).sum().realize()
whole = Tensor.empty(4)
whole.assign(Tensor.ones(4)).realize()
(whole + 1).realize()
lazy = Tensor.empty(4) + 1
"""


def test_memory_of_which_no_value_depends(tmp_path: Path) -> None:
    document = check(NOT_USED, tmp_path, status=0)
    assert document["findings"] == []


SHORT = """from tinygrad import Tensor
from tinygrad.renderer.cstyle import ClangRenderer
stock = ClangRenderer.render
def render(self, uops):
    source = stock(self, uops)
    return source.replace("< 7;", "< 5;") if "+1.0f" in source else source
ClangRenderer.render = render
x = Tensor([1.0, 2, 3, 4, 5, 6, 7]).realize()
((x + 1).contiguous() * 2).sum().realize()
"""


def test_elements_that_a_wrong_kernel_leaves_out(tmp_path: Path) -> None:
    document = check(SHORT, tmp_path, status=1)
    (finding,) = document["findings"]
    assert "it leaves out 2 elements of its result" in finding["message"]
