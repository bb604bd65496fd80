"""Each fault that was found is still there, is found by the reference, and is in the table of docs/found.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.found.heads import RELEASES, find_programs, read_head
from tests.fuzz.hunt.runner import Runner

TABLE = Path(__file__).parent.parent.parent / "docs" / "found.md"


@pytest.fixture(scope="module", params=RELEASES)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    runner = Runner(request.param)
    yield runner
    runner.stop()


@pytest.mark.parametrize("file", find_programs(), ids=lambda file: file.stem)
def test_the_result_of_a_program_is_as_its_header_says(runner: Runner, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    outcome = runner.run(text)
    assert outcome.kind == read_head(text).kinds[runner.name], outcome


def test_the_table_has_each_of_them() -> None:
    table = TABLE.read_text(encoding="utf-8")
    assert [file.stem for file in find_programs() if f"`{file.stem}`" not in table] == []
