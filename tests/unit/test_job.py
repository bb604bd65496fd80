"""The job and the requests arrive at the child as they left the command line; last.json gives back the whole job."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from vmapdbg.commands.shared.work_folder import make_folder, recall_job, remember_job
from vmapdbg.install.job import CheckRequest, Job, Request, TrialRequest, dump_record, load_job, load_request
from vmapdbg.install.patches import ALL, Patches
from vmapdbg.model.failure import Failure

JOB = Job("a.py", ("--steps", "1"), "metal", frozenset({"close-ranges"}), 2.5, True)


@pytest.mark.parametrize("patches", [ALL, frozenset({"close-ranges"}), frozenset(), None])
def test_a_job_and_a_request_come_back_whole(patches: Patches | None) -> None:
    """No patch at all and stock tinygrad are two things."""
    job = replace(JOB, patches=patches)
    assert load_job(dump_record(job)) == job
    requests: list[Request] = [
        Request(job=job, folder="/tmp/x"),
        Request(job=job, folder="/tmp/x", evidence="/tmp/y"),
        CheckRequest(job=job, folder="/tmp/x", evidence="/tmp/y"),
        TrialRequest(job=job, folder="/tmp/x", preloads=False),
    ]
    for request in requests:
        assert load_request(type(request), dump_record(request)) == request


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is remembered for the working directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return make_folder()


def test_the_whole_job_is_remembered_outside_of_the_working_directory(folder: Path) -> None:
    remember_job(JOB)
    assert recall_job() == JOB
    assert list(Path.cwd().iterdir()) == []
    # another directory knows nothing of it
    os.chdir("..")
    with pytest.raises(Failure, match="none is remembered here"):
        recall_job()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"snippet": "a.py", "patches": "all,-everything"}', '{"snippet": "a.py", "unknown": 1}']
)
def test_a_broken_job_is_not_remembered(text: str, folder: Path) -> None:
    (folder / "last.json").write_text(text, encoding="utf-8")
    with pytest.raises(Failure, match="none is remembered here"):
        recall_job()


def test_a_job_of_an_older_version_is_still_known(folder: Path) -> None:
    """Before, `values` was not remembered."""
    old = {"snippet": "a.py", "arguments": ["x"], "target": "c", "patches": "close-ranges", "timeout": None}
    (folder / "last.json").write_text(json.dumps(old), encoding="utf-8")
    assert recall_job() == Job("a.py", ("x",), "c", frozenset({"close-ranges"}), None)
