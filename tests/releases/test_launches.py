"""A launch that raises, on each release: `check` names its kernel, and who dies later did not die in it."""

from __future__ import annotations

import json
from pathlib import Path

from tool import run_tool

# more memory than there is
TOO_LARGE = "(Tensor([1.0, 2.0]).pad((0, 1 << 45)) + 1).realize()"


def test_the_kernel_whose_launch_raises_is_named(release: str, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(f"from tinygrad import Tensor\n{TOO_LARGE}\n", encoding="utf-8")
    done = run_tool("check", "snippet.py", "--tinygrad", release, cwd=tmp_path)
    assert done.returncode == 3
    assert "failed: OSError: [Errno 12] Cannot allocate memory" in done.stdout
    assert "in kernel E_" in done.stdout


def test_a_launch_that_raised_is_not_what_the_process_died_in(release: str, tmp_path: Path) -> None:
    lines = ["import ctypes", "from tinygrad import Tensor", "try:", f"    {TOO_LARGE}", "except OSError:"]
    text = "\n".join([*lines, "    ctypes.string_at(0)", ""])
    (tmp_path / "snippet.py").write_text(text, encoding="utf-8")
    done = run_tool("show", "snippet.py", "--json", "--tinygrad", release, cwd=tmp_path)
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["message"] == "snippet.py was killed by SIGSEGV"
