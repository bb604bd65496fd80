"""`check` on each release as it is: what is right is right for the numpy reference, a fault of a release is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RIGHT = """
from tinygrad import Tensor, Variable, dtypes
Tensor.manual_seed(1)
a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
made = {
    "sum": a.sum(0) * 2,
    "attention": a.softmax(1) @ a.T,
    "movement": a.flip(1).pad(((1, 0), (0, 2))).roll(1, 1).cat(a.pad(((0, 1), (0, 2)))),
    "stack": Tensor.stack(a, a + 1).permute(2, 0, 1),
    "choice": (a > 2).where(a, 0).sum(),
    "taken": a.gather(1, Tensor([[0, 2], [1, 1]])),
    "indexed": a[Tensor([1, 0, 1])],
    "integers": Tensor([-7, 7, 8]) // Tensor([2, -2, 3]) + Tensor([-7, 7, 8]) % Tensor([2, -2, 3]),
    "wrapped": Tensor([250, 7], dtype=dtypes.uint8) + 10,
    "cast": (a * -1.5).cast(dtypes.int),
    "bits": a.bitcast(dtypes.uint32),
    "mean": a.cast(dtypes.uint8).mean(),
    "half": a.half().cumsum(1),
    "bfloat16": (a.bfloat16() * 1.3).sum(1),
    "random": Tensor.randn(3, 4).dropout(0.5),
    "conv": Tensor.rand(1, 2, 6, 6).conv2d(Tensor.rand(3, 2, 3, 3), padding=1).max_pool2d(),
    "entropy": a.sparse_categorical_crossentropy(Tensor([0, 2])),
    "sorted": a.sort(1, descending=True)[0],
    "symbolic": a[:, : Variable("n", 1, 3).bind(2)].sum(),
}
for value in made.values():
    value.realize()
x = Tensor.zeros(4).contiguous().realize()
x[1:3] = 5.0
x.realize()
x.assign(x + 1).realize()
over = Tensor.zeros(4).contiguous()
over.assign(Tensor.ones(4)).realize()
chosen = Tensor.zeros(4, 3, dtype=dtypes.int).contiguous()
chosen[Tensor([0, 2])] = 9
chosen.realize()
shards = Tensor.arange(4).float().contiguous().realize().shard(("CPU:0", "CPU:1"), 0)
sharded = (shards * 2 + 1).realize()
"""

SOFTMAX = """
from tinygrad import Tensor
x = Tensor([[0.5 * i * j % 3 for i in range(32)] for j in range(8)]).realize()
y = x.softmax().realize()
"""


def check(tree: Path, folder: Path, text: str, **settings: str) -> subprocess.CompletedProcess[str]:
    (folder / "snippet.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "vmapdbg", "check", "snippet.py", "--tinygrad", str(tree)]
    environment = {**os.environ, "COLUMNS": "100", "DEV": "CPU", **settings}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_what_is_right_is_right_and_all_of_it_is_compared(tree: Path, tmp_path: Path) -> None:
    done = check(tree, tmp_path, RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "outputs, all right" in done.stdout
    assert "compared with the numpy reference" in done.stdout
    assert "not checked" not in done.stdout, done.stdout


@pytest.mark.parametrize("fusion", ["0", "2"])
def test_the_softmax_that_one_release_computes_wrong(release: str, tree: Path, tmp_path: Path, fusion: str) -> None:
    """0.14.0 with PCONTIG=2 resets the accumulator in the loop that adds to it."""
    done = check(tree, tmp_path, SOFTMAX, PCONTIG=fusion)
    is_wrong = release == "0.14.0" and fusion == "2"
    assert done.returncode == int(is_wrong), done.stdout + done.stderr
    if is_wrong:
        text = " ".join(done.stdout.split())
        assert "snippet.py:4 output 0 (8, 32) float: 256 of 256 elements wrong" in text


REPLAYED = """
from tinygrad import Tensor, TinyJit

@TinyJit
def double(x):
  return (x * 2).realize()

for i in range(4):
  double(Tensor([float(i)]).realize())
"""


def test_replays_that_are_not_compared_are_told(tree: Path, tmp_path: Path) -> None:
    done = check(tree, tmp_path, REPLAYED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 replays by TinyJit: on an observed tinygrad they are not compared" in " ".join(done.stdout.split())
