"""Edits that `tune` tries: where they are in the source, in which order they are tried, and what of them is proposed.

If these tests fail, `tune` proposes a useless edit, misses a useful edit, or writes a wrong file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import make_capture, make_kernel, make_node, make_schedule
from rendered import flatten, print_to_text

from vmapdbg.child.edited import read_snippet
from vmapdbg.commands import tune_runs
from vmapdbg.commands.tune_runs import Tuner, tune_job
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import ALL
from vmapdbg.model.capture import Capture, Measured, Output, SnippetError
from vmapdbg.model.failure import Failure
from vmapdbg.page.documents import TuneDocument
from vmapdbg.page.text.tune import print_tune
from vmapdbg.tune.candidates import Candidate, list_candidates, list_switches
from vmapdbg.tune.edits import STORE_GRADIENT, Edit, Source, apply_edits, diff_file
from vmapdbg.tune.search import Edits, EditSearcher, EditTrial, find_other_value, saves

ROOT = Path(__file__).parent.parent.parent

# *** edits

SOURCE = """\
from tinygrad import Tensor
x = Tensor.empty(4, 4)
a = x.sin() * x.cos()
b = (a + 1).reshape(2, 8)
c = f(a, b[0], -a)
d = (a @
     x).exp()
e = a.exp().contiguous()
N = 2 * 3
ä = "ü", x.log2()
"""


def source(text: str = SOURCE, file: str = "s.py") -> Source:
    return Source(file, text.encode())


def edit_at(line: int, method: str | None, text: str = SOURCE) -> list[str]:
    """The new text of each edit at a line."""
    made = source(text)
    return [made.store(node).new for node in made.find_values(line, method)]


@pytest.mark.parametrize(
    ("line", "method", "new"),
    [
        (3, "sin", ["x.sin().contiguous()"]),
        (3, "__mul__", ["(x.sin() * x.cos()).contiguous()"]),
        # the parentheses that are there are used
        (4, "__add__", ["(a + 1).contiguous()"]),
        (4, "reshape", ["(a + 1).reshape(2, 8).contiguous()"]),
        # the parentheses of a call are not used
        (5, "__neg__", ["(-a).contiguous()"]),
        (5, "__getitem__", ["b[0].contiguous()"]),
        # a function of the user, whatever is called inside
        (5, "linear", ["f(a, b[0], -a).contiguous()"]),
        (5, None, ["f(a, b[0], -a).contiguous()"]),
        # over several lines
        (7, "exp", ["(a @\n     x).exp().contiguous()"]),
        (6, "__matmul__", ["(a @\n     x).contiguous()"]),
        # stored already
        (8, "exp", []),
        # numbers
        (9, "__mul__", []),
        (10, "log2", ["x.log2().contiguous()"]),
    ],
)
def test_a_value_is_stored_where_its_method_is_called(line: int, method: str | None, new: list[str]) -> None:
    assert edit_at(line, method) == new


@pytest.mark.parametrize(
    ("call", "new"),
    [
        (
            "(x * y).cumsum(1)",
            "(lambda s: (s + (s[:, :, -1:].cumsum(1) - s[:, :, -1:])).flatten(1, 2))"
            "((x * y).unflatten(1, (-1, 16)).cumsum(2))",
        ),
        (
            "f(x) .cumsum(-2)",
            "(lambda s: (s + (s[..., -1:, :].cumsum(-3) - s[..., -1:, :])).flatten(-3, -2))"
            "(f(x) .unflatten(-2, (-1, 16)).cumsum(-2))",
        ),
        (
            "x.cumsum()",
            "(lambda s: (s + (s[:, -1:].cumsum(0) - s[:, -1:])).flatten(0, 1))(x.unflatten(0, (-1, 16)).cumsum(1))",
        ),
        # which axis is it, and is it one?
        ("x.cumsum(n)", None),
        ("x.cumsum(axis=1)", None),
        ("cumsum(x, 1)", None),
        ("x.cumprod(1)", None),
    ],
)
def test_a_cumsum_is_computed_in_blocks(call: str, new: str | None) -> None:
    made = source(f"y = {call}\n")
    found = [edit.new for node in made.find_values(1, None) for edit in made.split_scan(node)]
    assert found == ([] if new is None else [new])


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_blocks_give_the_same_sums(axis: int) -> None:
    class Array(np.ndarray):
        """Tensor's methods, on integers."""

        def unflatten(self, axis: int, sizes: tuple[int, ...]) -> Any:
            axis %= self.ndim
            return self.reshape(*self.shape[:axis], *sizes, *self.shape[axis + 1 :])

        def flatten(self, first: int, last: int) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            first, last = first % self.ndim, last % self.ndim
            return self.reshape(*self.shape[:first], -1, *self.shape[last + 1 :])

    x = np.arange(32 * 48 * 64).reshape(32, 48, 64).view(Array)
    made = source(f"x.cumsum({axis})\n")
    (edit,) = (edit for node in made.find_values(1, "cumsum") for edit in made.split_scan(node))
    assert (eval(edit.new) == x.cumsum(axis)).all()


def test_only_a_long_cumsum_is_computed_in_blocks() -> None:
    """It is ranked by the time of the kernels that compute it."""

    def labels(length: int, method: str = "cumsum") -> list[str]:
        nodes = (
            make_node(0, "BUFFER", shape=(4, length, length)),
            make_node(1, "REDUCE_AXIS", src=(0,), shape=(4, length, 1), line="s.py:1", method=method),
        )
        kernel = make_kernel("r_1", nodes=(1,), outputs=(1,), measured=Measured(1, 1e-3, 1e-3, 1e-3))
        capture = make_capture(make_schedule(nodes=nodes, kernels=(kernel,)))
        text = "y = x.cumsum(1)\n"
        found = list_candidates(capture, {"s.py": source(text)}, "time")
        return [edit.label for gain, edits in found for edit in edits if edit.label.startswith("blocks") and gain == 1]

    assert labels(32) == ["blocks of 16 for x.cumsum(1)"]
    assert labels(16) == []
    assert labels(32, "matmul") == []


def test_several_edits_change_only_their_bytes() -> None:
    made = source()
    edits = [
        made.store(node)
        for line, method in ((3, "sin"), (3, "cos"), (10, "log2"))
        for node in made.find_values(line, method)
    ]
    after = apply_edits(made.data, edits)
    assert "a = x.sin().contiguous() * x.cos().contiguous()\n" in after.decode()
    assert 'ä = "ü", x.log2().contiguous()\n' in after.decode()
    diff = diff_file("s.py", made.data, after)
    assert diff.startswith("--- s.py\n+++ s.py\n@@ -2,3 +2,3 @@\n x = Tensor.empty(4, 4)\n-a = x.sin()")
    assert "\\ No newline" not in diff
    assert "\\ No newline at end of file\n" in diff_file("s.py", b"a", b"b")


def test_line_ends_of_windows_stay() -> None:
    made = source(SOURCE.replace("\n", "\r\n"))
    (node,) = made.find_values(6, "__matmul__")
    assert b"d = (a @\r\n     x).contiguous().exp()\r\n" in apply_edits(made.data, [made.store(node)])


def test_a_store_is_removed_with_its_call_only() -> None:
    made = source("y = (\n  x.exp()\n).contiguous() + x.contiguous()\n")
    first, second = made.list_stores({3})
    assert apply_edits(made.data, [first, second]) == b"y = (\n  x.exp()\n) + x\n"
    assert list(made.list_stores({1})) == []


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfx = 1\n", "# coding: latin-1\nx = 'ü'\n".encode("latin-1"), b"x = ("])
def test_a_file_that_cannot_be_edited_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        Source("s.py", data)


def test_an_imported_file_runs_edited_and_leaves_no_bytecode(tmp_path: Path) -> None:
    """The user's folder stays as it is, and a traceback shows the line that ran."""
    (tmp_path / "s.py").write_text("import m\n", encoding="utf-8")
    (tmp_path / "m.py").write_text("x = 1\n", encoding="utf-8")
    edits = tmp_path / "edits.json"
    edits.write_text(json.dumps({str(tmp_path / "m.py"): "x = 2\nraise ValueError\n"}), encoding="utf-8")
    code = """import sys, traceback
from vmapdbg.child.edited import read_snippet
sys.path[0] = "."
try:
    exec(read_snippet(*sys.argv[1:]))
except ValueError:
    traceback.print_exc()
"""
    command, variables = [sys.executable, "-c", code, "s.py", str(edits)], {**os.environ, "PYTHONPATH": str(ROOT)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert 'm.py", line 2, in <module>\n    raise ValueError\n' in done.stderr
    assert not (tmp_path / "__pycache__").exists()


# *** candidates

MATMUL = """\
y = x.sin()
z = y @ w
"""


def matmul(**of_sine: Any) -> Capture:
    """A matmul (4, 8, 16) that computes a sine in its loops."""
    nodes = (
        make_node(1, "PARAM", (4, 8)),
        make_node(2, "PARAM", (8, 16)),
        replace(make_node(3, "SIN", (4, 8), src=(1,), line="s.py:1", method="sin"), **of_sine),
        make_node(4, "EXPAND", (4, 8, 16), src=(3,), line="s.py:2", method="__matmul__"),
        make_node(5, "MUL", (4, 8, 16), src=(4, 2), line="s.py:2", method="__matmul__"),
        make_node(6, "REDUCE", (4, 1, 16), src=(5,), line="s.py:2", method="__matmul__"),
    )
    kernel = make_kernel(
        "r", nodes=(3, 4, 5, 6), outputs=(6,), executed_ops=5000, key="k", measured=Measured(1, 1e-3, 1e-3, 1e-3)
    )
    return make_capture(make_schedule(nodes=nodes, kernels=(kernel,)))


def labels(candidates: list[Candidate]) -> list[list[str]]:
    return [[edit.label for edit in edits] for _, edits in candidates]


def test_what_a_reduce_computes_again_is_tried_first() -> None:
    found = list_candidates(matmul(), {"s.py": source(MATMUL)}, "time")
    assert labels(found)[0] == [".contiguous() on x.sin()"]
    assert found[0][0] > 0.5


def test_a_gradient_is_stored_in_the_backward_pass() -> None:
    found = list_candidates(matmul(phase="backward"), {"s.py": source(MATMUL)}, "time")
    assert labels(found)[0] == [f"{STORE_GRADIENT} on x.sin()"]


def test_nothing_is_tried_where_each_value_is_computed_once() -> None:
    nodes = (
        make_node(1, "PARAM"),
        make_node(2, "SIN", src=(1,), line="s.py:1", method="sin"),
        make_node(3, "NEG", src=(2,)),
    )
    kernel = make_kernel("E", nodes=(2, 3), outputs=(3,), measured=Measured(1, 1.0, 1.0, 1.0))
    capture = make_capture(make_schedule(nodes=nodes, kernels=(kernel,)))
    assert list_candidates(capture, {"s.py": source(MATMUL)}, "time") == []


def test_edits_of_a_line_are_tried_together_before_each_alone() -> None:
    """The cosine and the sine of a rotary embedding help only together."""
    capture = matmul(line="s.py:1", method="sin")
    (schedule,) = capture.schedules
    cosine = make_node(7, "SIN", (4, 8), src=(1,), line="s.py:1", method="cos")
    nodes = (
        *schedule.nodes[:2],
        schedule.nodes[2],
        *schedule.nodes[3:4],
        replace(schedule.nodes[4], src=(4, 2, 7)),
        schedule.nodes[5],
    )
    nodes = tuple(sorted((*nodes, replace(cosine, id=0, src=())), key=lambda node: node.id))
    nodes = tuple(replace(node, src=(4, 2, 0)) if node.id == 5 else node for node in nodes)
    kernel = replace(schedule.kernels[0], nodes=(0, 3, 4, 5, 6))
    capture = make_capture(make_schedule(nodes=nodes, kernels=(kernel,)))
    found = labels(list_candidates(capture, {"s.py": source("c, s = x.cos(), x.sin()\nz = c @ s\n")}, "time"))
    assert sorted(found[0]) == [".contiguous() on x.cos()", ".contiguous() on x.sin()"]
    assert [".contiguous() on x.cos()"] in found[1:]


def test_installed_packages_and_unknown_files_are_not_edited() -> None:
    assert list_candidates(matmul(line="/lib/site-packages/p.py:1"), {"s.py": source(MATMUL)}, "time") == []


def test_patches_are_switched_one_by_one_and_tinygrad_otherwise_by_its_variables() -> None:
    observed = labels(list_switches(Job("s.py", patches=None)))
    assert ["PCONTIG=2"] in observed
    patched = labels(list_switches(Job("s.py", patches=ALL)))
    assert ["--patches all,-fuse-broadcast"] in patched
    assert ["--patches none"] in patched
    assert ["--patches all"] not in patched
    assert ["--patches none"] not in labels(list_switches(Job("s.py", patches=frozenset())))


# *** the search

A, B, C = (
    Edit("s.py", start, start + 1, "s.py:1", name, name, f"{name}.contiguous()")
    for start, name in ((0, "A"), (4, "B"), (8, "C"))
)
WAY = Edit(label="PCONTIG=2", new="PCONTIG=2")
UNCHANGED = EditTrial((), "unchanged", 100.0, key="as it is")


def search(
    numbers: dict[Edits, float | str], *candidates: Edits, runs: int = 100, noise: float = 1.0
) -> tuple[EditTrial, EditTrial, EditSearcher]:
    """Searches where a run with edits has a number, or an outcome without one."""

    def ask(edits: Edits) -> EditTrial:
        number = numbers.get(tuple(sorted(edits)), 100.0)
        asked.append(edits)
        if isinstance(number, str):
            return EditTrial(edits, "fails" if number == "fails" else "other-values", about=number)
        return EditTrial(edits, "unchanged", number, key="as it is" if number == 100.0 else str(edits))

    asked: list[Edits] = []
    searcher = EditSearcher(UNCHANGED, ask, lambda: len(asked) >= runs, noise)
    best, way = searcher.search([(1.0 - i / 10, edits) for i, edits in enumerate(candidates)])
    return best, way, searcher


def test_each_edit_is_tried_on_top_of_those_that_helped() -> None:
    best, way, searcher = search({(A,): 50.0, (A, B): 80.0, (A, C): 20.0}, (A,), (B,), (C,))
    assert set(best.edits) == {A, C}
    assert way.edits == ()
    assert [trial.outcome for trial in searcher.trials] == ["helps", "no-better", "helps"]


def test_a_pair_that_helps_only_together_is_found_and_what_brings_nothing_is_left_out() -> None:
    assert set(search({(A, B): 10.0}, (A, B), (A,), (B,))[0].edits) == {A, B}
    assert search({(A, B): 10.0, (A,): 10.0}, (A, B))[0].edits == (A,)


def test_an_edit_is_replaced_by_edits_of_which_one_changes_the_same_text() -> None:
    """Both at once would not be Python."""
    other = replace(A, new="(A + 0).contiguous()")
    best, _, searcher = search({(A,): 50.0, tuple(sorted((other, B))): 20.0}, (A,), (other, B))
    assert set(best.edits) == {other, B}
    assert not any({A, other} <= set(trial.edits) for trial in searcher.trials)


@pytest.mark.parametrize("outcome", ["fails", "output 0 differs"])
def test_an_edit_that_fails_or_has_other_values_is_never_the_best(outcome: str) -> None:
    best, _, searcher = search({(A,): outcome, (B,): 50.0}, (A,), (B,))
    assert best.edits == (B,)
    assert searcher.trials[0].outcome in ("fails", "other-values")


def test_less_than_the_noise_or_three_per_cent_is_nothing() -> None:
    assert search({(A,): 90.0}, (A,), noise=20.0)[0].edits == ()
    assert search({(A,): 98.0}, (A,), noise=0.0)[0].edits == ()


def test_a_store_without_effect_is_tried_as_a_copy() -> None:
    """tinygrad 0.14 makes no buffer of a value computed from constants alone."""
    copy = replace(A, new="A.clone()")
    best, _, searcher = search({(copy,): 10.0}, (A,))
    assert best.edits == (copy,)
    assert [trial.outcome for trial in searcher.trials] == ["same-kernels", "helps"]


def test_the_budget_ends_the_search_and_says_what_is_left() -> None:
    best, _, searcher = search({(A,): 50.0, (B,): 1.0}, (A,), (B,), (C,), runs=1)
    assert best.edits == (A,)
    assert [trial.edits for trial in searcher.untried] == [(B,), (C,)]


def test_another_way_to_run_is_no_edit() -> None:
    best, way, _ = search({(A,): 50.0, (WAY,): 40.0}, (A,), (WAY,))
    assert (best.edits, way.edits) == ((A,), (WAY,))


def test_runs_in_turns_must_differ_by_more_than_both_noises() -> None:
    assert saves([10.0, 10.1, 10.2], [5.0, 5.1, 5.2])
    assert not saves([10.0, 14.0, 15.0], [9.0, 11.0, 12.0])
    # each run is faster than each other run, on a machine that is busy
    assert saves([10.0, 14.0, 20.0], [6.0, 9.0, 9.5])
    assert not saves([10.0, 10.0], [9.8, 9.8])


def outputs(*values: float, dtype: str = "float") -> Capture:
    made = tuple(Output((1,), dtype, str(value), (value,)) for value in values)
    return make_capture(make_schedule(outputs=made))


def test_other_values_are_more_than_a_rounding() -> None:
    assert find_other_value(outputs(1.0), outputs(1.00001)) == ""
    assert find_other_value(outputs(1.0), outputs(1.1)) == "output 0 differs"
    assert find_other_value(outputs(1, 2, dtype="int"), outputs(1, 3, dtype="int")) == "output 1 differs"
    # a Tensor that was left lazy has a buffer with the edit, and is not realized at the end
    assert find_other_value(outputs(1.0, 2.0), outputs(2.0)) == ""
    assert find_other_value(outputs(1.0, 2.0), outputs(3.0)) == "output 0 differs"
    assert find_other_value(outputs(1.0), outputs(1.0, 2.0)) == "2 outputs instead of 1"


# *** the command


class Machine:
    """Runs of a program whose time is in its text: half a second with the edit, else one second."""

    def __init__(self, folder: Path, **wrong: str) -> None:
        self.file, self.wrong, self.ran = folder / "s.py", wrong, 0
        self.file.write_text(MATMUL, encoding="utf-8")

    def run(self, job: Job, *_: Any, **__: Any) -> Run:
        self.ran += 1
        is_edited = bool(job.edits) and ".contiguous()" in read_snippet(job.snippet, job.edits).decode()
        capture = matmul(line=f"{job.snippet}:1")
        seconds, ops = (0.5, 600) if is_edited else (1.0, 5000)
        if "fails" in self.wrong and is_edited:
            capture = replace(capture, error=SnippetError("ValueError", "no", None))
        schedule = capture.schedules[0]
        measured = Measured(1, seconds, seconds, seconds)
        kernel = replace(schedule.kernels[0], measured=measured, executed_ops=ops, key=str(is_edited))
        value = 2.0 if "value" in self.wrong and is_edited else 1.0
        made = Output((1,), "float", str(value), (value,))
        schedule = replace(schedule, kernels=(kernel,), outputs=(made,))
        peak = 1 << (20 + is_edited)
        return Run(replace(capture, snippet=job.snippet, schedules=(schedule,), peak_bytes=peak))

    def run_in_turns(self, jobs: list[Job], turns: int, _: Any) -> list[list[Run]]:
        return [[self.run(job)] * turns for job in jobs]


class Report:
    """What check finds: nothing wrong in one output."""

    def __init__(self, wrong: bool = False) -> None:
        self.wrong, self.outputs, self.schedules = wrong, (None,), (self,)


Tune = Callable[..., tuple[TuneDocument, Tuner, Machine]]


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    def run(by: str = "time", budget: float = 100.0, **wrong: str) -> tuple[TuneDocument, Tuner, Machine]:
        machine = Machine(tmp_path, **wrong)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(tune_runs, "run_in_turns", machine.run_in_turns)
        monkeypatch.setattr(tune_runs, "check_job", lambda job: (None, Report("reference" in wrong), None))
        return *tune_job(Job("s.py", patches=None), by, budget), machine

    return run


def test_an_edit_is_proposed_with_its_effect_and_its_diff(tune: Tune) -> None:
    document, _, machine = tune()
    (proposal,) = document.proposals
    assert [edit.label for edit in proposal.edits] == [".contiguous() on x.sin()"]
    assert (proposal.before, proposal.after, proposal.noise) == ((1.0,) * 5, (0.5,) * 5, 0.0)
    assert (proposal.executed_ops, proposal.peak_bytes, proposal.compared) == ((5000, 600), (1 << 20, 1 << 21), 1)
    assert "-y = x.sin()\n+y = x.sin().contiguous()\n" in proposal.diff
    assert machine.file.read_text(encoding="utf-8") == MATMUL
    said = flatten(print_to_text(lambda console: print_tune(document, console)))
    assert "s.py 1 change found" in said
    assert "s.py:1 .contiguous() on x.sin()" in said
    assert "time 1.00 s -> 500 ms (0.50x) medians of 5 runs each, in turns, noise 0 ns" in said
    assert "ops 5,000 -> 600 (0.12x)" in said
    assert "peak 1 MiB -> 2 MiB" in said
    assert "1 output as the numpy reference and the unchanged program have them" in said
    assert "+y = x.sin().contiguous()" in said


@pytest.mark.parametrize(
    ("wrong", "outcome", "about"),
    [
        ("value", "other-values", "output 0 differs"),
        ("reference", "other-values", "differs from the numpy reference"),
        ("fails", "fails", "ValueError: no"),
    ],
)
def test_a_wrong_edit_is_not_proposed_and_the_report_says_why(wrong: str, outcome: str, about: str, tune: Tune) -> None:
    document, _, _ = tune(**{wrong: "1"})
    assert document.proposals == ()
    assert any(trial.outcome == outcome and trial.about == about for trial in document.tried)
    said = flatten(print_to_text(lambda console: print_tune(document, console)))
    assert "no edit that was tried helps" in said
    assert "unchanged: 1.00 s; 100% of the time in kernels is r" in said
    assert f"({about})" in said


def test_more_memory_is_no_gain_by_memory(tune: Tune) -> None:
    document, _, _ = tune(by="memory")
    assert document.proposals == ()
    assert document.number == 1 << 20


def test_after_the_budget_nothing_is_tried(tune: Tune) -> None:
    document, _, _ = tune(budget=1e-9)
    assert (document.proposals, document.tried) == ((), ())
    said = flatten(print_to_text(lambda console: print_tune(document, console)))
    assert "not tried in 1e-09 seconds (--budget), 3: s.py:1 .contiguous() on x.sin()" in said


# *** files


def test_write_keeps_a_link_and_the_rights(tune: Tune, capsys: pytest.CaptureFixture[str]) -> None:
    document, tuner, machine = tune()
    machine.file.rename(machine.file.with_name("real.py"))
    machine.file.symlink_to("real.py")
    machine.file.chmod(0o755)
    tuner.write(document.proposals[0].edits)
    assert machine.file.read_text(encoding="utf-8") == MATMUL.replace("x.sin()", "x.sin().contiguous()")
    assert machine.file.is_symlink()
    assert machine.file.stat().st_mode & 0o777 == 0o755
    assert capsys.readouterr().err.endswith("vmapdbg: wrote s.py\n")


def test_a_file_that_changed_meanwhile_is_not_written(tune: Tune) -> None:
    document, tuner, machine = tune()
    machine.file.write_text("mine\n", encoding="utf-8")
    with pytest.raises(Failure, match=r"s\.py changed while it was tuned: nothing was written"):
        tuner.write(document.proposals[0].edits)
    assert machine.file.read_text(encoding="utf-8") == "mine\n"


def test_a_read_only_file_is_not_written(tune: Tune) -> None:
    document, tuner, machine = tune()
    machine.file.chmod(0o444)
    with pytest.raises(Failure, match="read-only"):
        tuner.write(document.proposals[0].edits)
    assert machine.file.read_text(encoding="utf-8") == MATMUL
