"""The shipped JSON Schemas match the dataclasses, and refuse what is no document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import captures
import pytest
from captures import to_data
from jsonschema import Draft202012Validator

from vmapdbg.diff.captures import diff_captures
from vmapdbg.model.store import load_capture
from vmapdbg.model.vocabulary import Rule
from vmapdbg.page.documents import DOCUMENTS, FOLDER, LintDocument, dump_schema, make_document, make_schema, schema_file

ROOT = Path(__file__).parent.parent.parent


def validate(kind: str, data: Any) -> list[str]:
    """Returns what is wrong with a document, one line each."""
    errors = Draft202012Validator(json.loads(schema_file(kind).read_text(encoding="utf-8"))).iter_errors(data)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_shipped_schema_is_the_one_of_the_dataclass(kind: str) -> None:
    shipped = schema_file(kind).read_text(encoding="utf-8")
    assert shipped == dump_schema(kind, DOCUMENTS[kind]), "run python -m vmapdbg.page.documents"
    Draft202012Validator.check_schema(json.loads(shipped))


def test_there_is_one_for_each_kind_of_document() -> None:
    assert set(DOCUMENTS) == {file.stem for file in FOLDER.iterdir()}
    for kind, document in DOCUMENTS.items():
        assert make_schema(kind, document)["properties"]["kind"] == {"const": kind}


def test_hand_built_documents_are_valid() -> None:
    before, after = captures.lost_range(fixed=False), captures.lost_range()
    for capture in (before, after, captures.failed_snippet(), captures.long_graph()):
        assert validate("capture", to_data(capture)) == []
    assert validate("diff", to_data(diff_captures(before, after, ("1", "2")))) == []
    assert validate("lint", to_data(make_document(LintDocument, after, findings=after.findings, ignored=2))) == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_capture_of_an_older_version_is_valid(side: str) -> None:
    """It has no kind, no reasons: what came later is not required, and is there when it has been read."""
    file = ROOT / "tests" / "golden" / f"lost_range_{side}.json"
    old = json.loads(file.read_text(encoding="utf-8"))
    assert "kind" not in old
    assert validate("capture", old) == []
    assert validate("capture", to_data(load_capture(file))) == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["kind"], "diff", "'capture' was expected"),
        (["schema"], 2, "1 was expected"),
        (["schedules", 0, "bufferizes", 0, "outcome"], "lost", "'lost' is not one of ['kept', 'removed']"),
        (["schedules", 0, "nodes", 0, "id"], "x", "'x' is not of type 'integer'"),
        (["schedules", 0, "kernels", 0, "local_size"], 3, "is not valid under any of the given schemas"),
    ],
)
def test_invalid_documents_are_found(path: list[str | int], value: Any, message: str) -> None:
    data = to_data(captures.lost_range())
    part = data
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    (error,) = validate("capture", data)
    assert message in error


def test_rules_of_the_overlay_are_known() -> None:
    """The table of tinygrad/schedule/_refusals.py: the sentences of its rules are made here."""
    table = (ROOT / "tinygrad" / "schedule" / "_refusals.py").read_text(encoding="utf-8")
    refusals = re.findall(
        r"^\| (?:local-budget|fusion-guard|fuse-broadcast|realize-reused) \| ([a-z-]+) \|", table, flags=re.M
    )
    assert len(refusals) > 5
    assert set(refusals) <= set(get_args(get_args(Rule)[1]))
