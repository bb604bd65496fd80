"""What each command writes as JSON is valid by the JSON Schema that is shipped for it."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tool import ROOT, RunSample, run_tool

SNIPPET = "samples/lost_range.py"
# as the tests of the samples have it
SHOWN = ("--json", "--patches", "all", "--target", "c")
BROKEN = ("--patches", "all,-ambient-ranges")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    shutil.copytree(ROOT / "samples", path / "samples")
    return path


@cache
def read_schema(kind: str, folder: Path) -> dict[str, Any]:
    return json.loads(run_tool("schema", kind, cwd=folder).stdout)


def validate(data: Any, kind: str, folder: Path) -> None:
    errors = [f"{e.json_path}: {e.message}" for e in Draft202012Validator(read_schema(kind, folder)).iter_errors(data)]
    assert errors == []
    assert data["kind"] == kind


PRINTED = [
    ("capture", ("show", SNIPPET, *SHOWN)),
    ("capture", ("show", "samples/softmax.py", "--json", "--target", "metal")),
    ("diff", ("diff", SNIPPET, "--baseline=stock", "--json")),
    ("diff", ("diff", "samples/softmax.py", "--json")),
    ("lint", ("lint", SNIPPET, "--format", "json", *BROKEN)),
    ("check", ("check", SNIPPET, "--json", *BROKEN)),
    ("why-value", ("why", "--value", SNIPPET, "--json", *BROKEN)),
    pytest.param(
        "bisect",
        ("bisect", "samples/unclosed_range.py", "--by", "crash", "--runs", "4", "--json"),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "bisect-decisions",
        ("bisect", "samples/softmax.py", "--decisions", "--patches", "none", "--by", "kernels", "--json"),
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("kind", "command"), PRINTED, ids=lambda value: value if isinstance(value, str) else value[1])
def test_printed_document_is_valid(kind: str, command: tuple[str, ...], folder: Path, run_sample: RunSample) -> None:
    validate(json.loads(run_sample(*command).stdout), kind, folder)


@pytest.mark.slow
def test_written_documents_are_valid(folder: Path) -> None:
    run_tool("show", SNIPPET, "--save", "saved.json", cwd=folder)
    run_tool("run", "--lint-output", "run.json", SNIPPET, cwd=folder)
    written = [("capture", "saved.json"), ("run", "run.json")]
    for stage in ("tensor", "ranges", "kernels"):
        run_tool("graph", "saved.json", "--stage", stage, "-o", f"{stage}.json", cwd=folder)
        written.append(("graph", f"{stage}.json"))
    for kind, name in written:
        validate(json.loads((folder / name).read_text(encoding="utf-8")), kind, folder)


def test_reason_of_a_real_capture_has_its_operands(run_sample: RunSample) -> None:
    """A program need not read English to know why."""
    capture = json.loads(run_sample("show", "samples/softmax.py", *SHOWN).stdout)
    (schedule,) = capture["schedules"]
    asked = {node["id"]: node["in_ranges"] for node in schedule["nodes"]}
    found = 0
    for node in schedule["nodes"]:
        for reason in (node["realized"] or {"reasons": []})["reasons"]:
            if reason["rule"] == "consumers-disagree":
                found += 1
                pairs = zip(reason["nodes"], reason["ranges"], strict=True)
                assert all(asked[reader][reason["axis"]] == asks for reader, asks in pairs)
    assert found
    assert all(made["decided"]["rule"] for made in schedule["bufferizes"])
