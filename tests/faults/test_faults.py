"""Every planted fault that lint can see is found, at the right line and node, and a healthy program has no finding. The
examples in docs/lint.md are what the tool prints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lanes import make_once

ROOT = Path(__file__).parent.parent.parent
# without tinygrad in this process: the names alone
TABLE = (ROOT / "tests" / "faults" / "table.py").read_text(encoding="utf-8")
NAMES = re.findall(r'    "([a-z-]+)": Fault\(', TABLE)
UNSEEN = [name for name in NAMES if re.search(rf'"{name}": Fault(?:(?!: Fault)[\s\S])*?\bunseen=', TABLE)]
DOCS = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- fault: (\S+) -->\n```\n(.*?)\n```", DOCS, re.DOTALL)
# tinygrad counts the kernels of one name in a process
NUMBER = re.compile(r"(?<=\d)n\d+\b")


def plant_faults(folder: Path) -> None:
    """Writes what lint says of each fault; all of them are planted in one child process."""
    command = [sys.executable, "-m", "tests.faults.runner"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "outcomes.jsonl").write_text(done.stdout)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, dict[str, Any]]:
    folder = make_once(tmp_path_factory, worker_id, "faults", plant_faults)
    rows = [json.loads(line) for line in (folder / "outcomes.jsonl").read_text().splitlines()]
    return {row["name"]: row for row in rows}


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


@pytest.mark.parametrize(("name", "message"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_example_in_the_documents(outcomes: dict[str, dict[str, Any]], name: str, message: str) -> None:
    assert NUMBER.sub("", outcomes[name]["findings"][0]["message"]) == message


def test_every_code_has_an_example(outcomes: dict[str, dict[str, Any]]) -> None:
    codes = {outcomes[name]["findings"][0]["code"] for name, _ in EXAMPLES}
    assert codes == {f"VD10{i}" for i in range(1, 8)}
