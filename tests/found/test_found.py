"""Each fault that was found is still there, is found by the reference, and is in the table of docs/found.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.hunt.runner import Runner

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
TABLE = Path(__file__).parent.parent.parent / "docs" / "found.md"


@pytest.fixture(scope="module", params=("0.12.0", "0.13.0", "0.14.0", "patches"))
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    runner = Runner(request.param)
    yield runner
    runner.stop()


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_the_result_of_a_program_is_as_its_header_says(runner: Runner, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    kinds = dict(re.findall(r"^# on (\S+): (\w+)", text, re.MULTILINE))
    outcome = runner.run(text)
    assert outcome.kind == kinds[runner.name], outcome


def test_the_table_has_each_of_them() -> None:
    table = TABLE.read_text(encoding="utf-8")
    assert [file.stem for file in PROGRAMS if f"`{file.stem}`" not in table] == []
