"""`check` finds races between threads of kernels whose addresses are loaded: they are computed from what was loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tool import run_tool, write

# threads without a GPU: tinygrad runs the program of one on its PYTHON device
GPU = {"DEV": "PYTHON", "EMULATE": "METAL"}
SNIPPET = """from tinygrad import Tensor, codegen
from tinygrad.uop import Ops

stock = codegen.full_rewrite_to_sink

def read_own_output(*args, **kwargs):
    sink = stock(*args, **kwargs)
    memory = sorted((u for u in sink.toposort() if u.op is Ops.DEFINE_GLOBAL), key=lambda u: u.arg)
    return sink.substitute({memory[number]: memory[0] for number in READ}) if len(memory) == 3 else sink

codegen.full_rewrite_to_sink = read_own_output
x = Tensor.arange(64).contiguous().realize()
places = Tensor([PLACE for i in range(64)]).realize()
x.assign(x[places])
x.realize()
"""


def check(folder: Path, read: str, place: str) -> dict[str, Any]:
    write(folder, SNIPPET.replace("READ", read).replace("PLACE", place))
    done = run_tool("check", "snippet.py", "--json", "--patches", "none", cwd=folder, **GPU)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_a_gather_from_its_own_output_is_a_race(tmp_path: Path) -> None:
    """Threads load what others store: which value they get is chance."""
    document = check(tmp_path, "(2,)", "(i * 7 + 3) % 64")
    (race,) = (race for one in document["schedules"] for race in one["races"])
    assert sorted(race["race"]["kinds"]) == ["load", "store"]
    assert race["race"]["threads"][0] != race["race"]["threads"][1]
    (finding,) = (one for one in document["findings"] if one["code"] == "VD113")
    assert (finding["kernel"], finding["line"]) == (race["name"], "snippet.py:14")
    assert "no barrier is between" in finding["message"]


@pytest.mark.parametrize(("read", "place"), [("()", "(i * 7 + 3) % 64"), ("(2,)", "i")])
def test_no_race(read: str, place: str, tmp_path: Path) -> None:
    """The gather reads other memory than it writes; or each thread loads its own element alone."""
    document = check(tmp_path, read, place)
    assert "VD113" not in {one["code"] for one in document["findings"]}
    assert not any(one["what"] == "kernels" for one in document["account"]["left"])


def test_a_kernel_that_is_not_decided_is_counted(tmp_path: Path) -> None:
    """The kernel writes the numbers that it loads as addresses: numpy does not know them, and nothing is all right."""
    document = check(tmp_path, "(1, 2)", "i")
    assert {"what": "kernels", "count": 1}.items() <= next(
        one.items() for one in document["account"]["left"] if one["what"] == "kernels"
    )


def test_a_program(tmp_path: Path) -> None:
    """`run --check` has the race among its findings, and lint counts the kernel as not looked at."""
    write(tmp_path, SNIPPET.replace("READ", "(2,)").replace("PLACE", "(i * 7 + 3) % 64"))
    done = run_tool("run", "--patches", "none", "--check", "snippet.py", cwd=tmp_path, **GPU)
    assert "VD113 race between threads" in done.stderr
    linted = run_tool("lint", "snippet.py", "--patches", "none", "--target", "metal", cwd=tmp_path, **GPU)
    assert "1 kernel (an address is unknown)" in " ".join(linted.stdout.split())
