"""A pytest plugin: runs chosen tests in a given order, and notes the seconds and the fixtures of each test."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ORDER, NOTES, TEST = "VMAPDBG_MUTATE_ORDER", "VMAPDBG_MUTATE_NOTES", "VMAPDBG_MUTATE_TEST"
"""Environment variables: the file with the tests to run, one a line; the file to write; and the test that runs now, as
PYTEST_CURRENT_TEST names it. A test of the pytest plugin starts a pytest, which sets that variable to its own tests."""

_seconds: dict[str, float] = defaultdict(float)
_outcomes: dict[str, str] = {}
_fixtures: dict[str, list[str]] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ORDER in os.environ:
        order = {name: number for number, name in enumerate(read_lines(Path(os.environ[ORDER])))}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
    for item in items:
        item.user_properties.append(("shared", list_shared(item)))


def read_lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def list_shared(item: pytest.Item) -> list[str]:
    """Returns the fixtures of ours that other tests get too: the first test that asks for one pays for all."""
    known: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    last = [(name, definitions[-1]) for name, definitions in known.items() if definitions]
    return [f"{one.baseid}::{name}" for name, one in last if one.baseid and one.scope != "function"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    os.environ[TEST] = f"{item.nodeid} (setup)"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    os.environ[TEST] = f"{item.nodeid} (call)"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if report.outcome != "passed" or report.nodeid not in _outcomes:
        _outcomes[report.nodeid] = report.outcome
    _fixtures[report.nodeid] = dict(report.user_properties).get("shared", [])  # type: ignore[assignment]


def pytest_sessionfinish(session: pytest.Session) -> None:
    # the workers of pytest-xdist send their reports to the first process
    if NOTES in os.environ and not hasattr(session.config, "workerinput"):
        notes = {
            name: {"seconds": _seconds[name], "outcome": outcome, "shared": _fixtures[name]}
            for name, outcome in _outcomes.items()
        }
        Path(os.environ[NOTES]).write_text(json.dumps(notes), encoding="utf-8")
