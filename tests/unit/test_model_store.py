"""A capture survives the trip through JSON, and a file that is not a capture is refused by name.

The shipped JSON Schemas match the dataclasses, and refuse what is not a document.
"""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import captures
import pytest
from captures import to_data
from jsonschema import Draft202012Validator

from docs.make_schemas import dump_schema, make_schema, schema_file
from vmapdbg.diff.captures import diff_captures
from vmapdbg.model import store
from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.store import SCHEMAS, StoreError, dump_document, load_capture, parse_capture, write_output
from vmapdbg.model.vocabulary import Rule
from vmapdbg.page.documents import DOCUMENTS, LintDocument, make_document

ROOT = Path(__file__).parent.parent.parent
LOST = captures.lost_range()
CAPTURES = [
    LOST,
    captures.lost_range(fixed=False),
    captures.failed_snippet(),
    captures.many_kernels(),
    captures.long_graph(),
]


@pytest.mark.parametrize("capture", CAPTURES, ids=range(len(CAPTURES)))
def test_capture_survives_the_trip(capture: Capture) -> None:
    assert parse_capture(dump_document(capture), "x") == capture
    assert parse_capture(store.dump_compact(capture), "x") == capture
    assert dump_document(parse_capture(store.dump_compact(capture), "x")) == dump_document(capture)


def test_keys_are_the_contract() -> None:
    """Scripts read these keys: a rename breaks them."""
    data = to_data(LOST)
    top = "schema kind versions snippet target patches error schedules findings mode missing peak_bytes account"
    top += " functions timing device memory sources"
    assert list(data) == top.split()
    (schedule,) = data["schedules"]
    kernel, finding = schedule["kernels"][0], to_data(captures.many_kernels())["findings"][0]
    for found, keys in (
        (schedule, "index line copies nodes vmap_map bufferizes kernels"),
        (schedule["nodes"][0], "id op dtype shape src in_ranges out_ranges ambient realized line"),
        (schedule["bufferizes"][0], "node closed_ranges ambient size bytes addrspace outcome reason decided"),
        (kernel, "name target source global_size local_size local_bytes threads executed_ops bytes redundancy"),
        (kernel, "buffers nodes lines"),
        (kernel["buffers"][0], "name size dtype access"),
        (finding, "kernel node line message advice schedule number source_line"),
    ):
        assert set(keys.split()) <= set(found), keys


DELETE = object()


def change(path: str, value: object) -> Any:
    """Returns the data of a capture with another value at a path such as `schedules.0.kernels`."""
    data = to_data(LOST)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place = data
    for step in steps:
        place = place[step]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return data


NODES, BUFFERS, KERNELS = (f"schedules.0.{name}" for name in ("nodes", "bufferizes", "kernels"))
AT = "at `$.schedules[0]"
LOST_OUTCOME = f"Invalid enum value 'lost' - {AT}.bufferizes[0].outcome`"
ANY = "is not valid under any of the given schemas"
# a path, a wrong value, what the tool says about it, and what the schema says
WRONG_DATA: list[tuple[str, object, str, str]] = [
    ("kind", "diff", "Invalid enum value 'diff' - at `$.kind`", "'capture' was expected"),
    ("schema", 2, "schema 2, newer than the 1", "1 was expected"),
    (f"{BUFFERS}.0.outcome", "lost", LOST_OUTCOME, "'lost' is not one of ['kept', 'removed']"),
    (f"{NODES}.11.realized.reasons", [{}], f"required field `rule` - {AT}.nodes[11].realized.reasons[0]`", ANY),
    (f"{NODES}.0.id", "x", f"Expected `int`, got `str` - {AT}.nodes[0].id`", "'x' is not of type 'integer'"),
    (f"{NODES}.0.id", True, f"Expected `int`, got `bool` - {AT}.nodes[0].id`", "True is not of type 'integer'"),
    (f"{KERNELS}.0.source", DELETE, f"required field `source` - {AT}.kernels[0]`", "'source' is a required property"),
    (f"{KERNELS}.0.local_size", 3, f"{AT}.kernels[0].local_size`", ANY),
    (KERNELS, None, "Expected `array`, got `null` - at `$.schedules[0].kernels`", "None is not of type 'array'"),
    ("patches", {"a": "yes"}, "Expected `bool`, got `str` - at `$.patches[...]`", "'yes' is not of type 'boolean'"),
    ("snippet", None, "Expected `str`, got `null` - at `$.snippet`", "None is not of type 'string'"),
]
WRONG_TEXTS = [
    ("", "not a vmapdbg capture"),
    ("[]", "has no schema number"),
    ("{}", "has no schema number"),
    ('{"schema": 0}', "schema 0, older than the 1"),
    ('{"schema": 1}', "missing required field `versions`"),
    ("[" * 100_000, "nested too deeply"),
    (json.dumps(change(f"{KERNELS}.0.nodes", [999])), "kernels.nodes: there is no node 999"),
    (json.dumps(change("schedules.0.index", 7)), "index: expected 0, not 7"),
    *((json.dumps(change(path, value)), message) for path, value, message, _ in WRONG_DATA),
]


@pytest.mark.parametrize(("text", "message"), WRONG_TEXTS, ids=range(len(WRONG_TEXTS)))
def test_an_error_names_the_place_in_a_file_that_is_not_a_capture(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match=re.escape(message)) as raised:
        load_capture(file)
    assert "\n" not in str(raised.value)


def test_unknown_keys_are_ignored() -> None:
    data = to_data(LOST)
    assert store.build_data(Capture, {**data, "later": 1}) == LOST
    assert data["schema"] == SCHEMA


def test_binary_and_missing_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    for name, word in (("b", "not text"), ("missing", "cannot read"), (".", "cannot read")):
        with pytest.raises(StoreError, match=word):
            load_capture(tmp_path / name)


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.json"
    store.write_output(file, store.dump_document(LOST))
    before = file.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match="No space left"):
        store.write_atomically(file, "half")
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_lone_surrogates_do_not_lose_the_capture() -> None:
    """A path that is no UTF-8 reaches Python as surrogates."""
    odd = replace(LOST, snippet="a\udcff.py")
    with pytest.raises(UnicodeEncodeError):
        odd.snippet.encode()
    assert parse_capture(dump_document(odd), "x") == odd


def test_an_output_goes_through_links_and_into_devices(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_output(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    write_output(Path("/dev/null"), "gone")
    assert Path("/dev/null").is_char_device()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    write_output(fifo, "through")
    reader.join()
    assert read == ["through"]
    assert fifo.is_fifo()
    # a link to nothing makes what it points to
    target.unlink()
    write_output(link, "newer")
    assert target.read_text() == "newer"
    with pytest.raises(StoreError, match="cannot write"):
        write_output(tmp_path / "no" / "folder", "new")


# *** schemas


def validate(kind: str, data: Any) -> list[str]:
    """Returns what is wrong with a document, one line each."""
    errors = Draft202012Validator(json.loads(schema_file(kind).read_text(encoding="utf-8"))).iter_errors(data)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_shipped_schema_is_the_one_of_the_dataclass(kind: str) -> None:
    shipped = schema_file(kind).read_text(encoding="utf-8")
    assert shipped == dump_schema(kind, DOCUMENTS[kind]), "run python -m docs.make_schemas"
    Draft202012Validator.check_schema(json.loads(shipped))


def test_there_is_one_for_each_kind_of_document() -> None:
    assert set(DOCUMENTS) == {file.stem for file in SCHEMAS.iterdir()}
    for kind, document in DOCUMENTS.items():
        assert make_schema(kind, document)["properties"]["kind"] == {"const": kind}


def test_hand_built_documents_are_valid() -> None:
    for capture in CAPTURES:
        assert validate("capture", to_data(capture)) == []
    assert validate("diff", to_data(diff_captures(CAPTURES[1], LOST, ("1", "2")))) == []
    assert validate("lint", to_data(make_document(LintDocument, LOST, findings=LOST.findings, ignored=2))) == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_capture_of_an_older_version_is_valid(side: str) -> None:
    """It has no kind, no reasons: what came later is not required, and is there when it has been read."""
    file = ROOT / "tests" / "golden" / f"lost_range_{side}.json"
    old = json.loads(file.read_text(encoding="utf-8"))
    assert "kind" not in old
    assert validate("capture", old) == []
    assert validate("capture", to_data(load_capture(file))) == []


@pytest.mark.parametrize(("path", "value", "_", "message"), WRONG_DATA)
def test_the_schema_finds_invalid_documents(path: str, value: object, _: str, message: str) -> None:
    (error,) = validate("capture", change(path, value))
    assert message in error


def test_rules_of_the_overlay_are_known() -> None:
    """The table of tinygrad/schedule/_refusals.py: the sentences of its rules are made here."""
    table = (ROOT / "tinygrad" / "schedule" / "_refusals.py").read_text(encoding="utf-8")
    patches = "local-budget|fusion-guard|fuse-broadcast|realize-reused"
    refusals = re.findall(rf"^\| (?:{patches}) \| ([a-z-]+) \|", table, flags=re.M)
    assert len(refusals) > 5
    assert set(refusals) <= set(get_args(get_args(Rule)[1]))
