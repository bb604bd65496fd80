"""Every planted fault that lint can see is found, at the right line and node, and a healthy program has no finding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
# without tinygrad in this process: the names alone
TABLE = (ROOT / "tests" / "faults" / "table.py").read_text(encoding="utf-8")
NAMES = re.findall(r'    Fault\(\n        "([a-z-]+)",', TABLE)
UNSEEN = [name for name in NAMES if re.search(rf'"{name}",(?:(?!\n    Fault)[\s\S])*?\n        unseen=', TABLE)]


def test_there_are_enough_faults() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 30


def test_every_fault_ran(outcomes: dict[str, dict[str, Any]]) -> None:
    assert list(outcomes) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_healthy_program_is_clean(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    assert outcomes[name]["healthy_error"] is None
    assert outcomes[name]["healthy"] == []


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNSEEN])
def test_fault_is_found_at_the_right_node(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    row = outcomes[name]
    assert row["found"], (row["findings"], row["error"])
    assert row["rank"] == 1, row["findings"]


@pytest.mark.parametrize("name", UNSEEN)
def test_without_facts_there_is_no_finding(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    """A finding about something else misleads the user; a correct finding belongs in the table."""
    assert outcomes[name]["findings"] == []
