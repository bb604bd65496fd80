"""A capture survives the trip through JSON, and a file that is none is refused by name."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import captures
import pytest
from captures import to_data

from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.store import (
    StoreError,
    build_data,
    dump_compact,
    dump_document,
    load_capture,
    parse_capture,
    save_capture,
    write_atomically,
    write_output,
)

CAPTURES = [
    captures.lost_range(),
    captures.lost_range(fixed=False),
    captures.failed_snippet(),
    captures.many_kernels(),
    captures.long_graph(),
]


@pytest.mark.parametrize("capture", CAPTURES, ids=range(len(CAPTURES)))
def test_capture_survives_the_trip(capture: Capture) -> None:
    assert parse_capture(dump_document(capture), "x") == capture
    assert parse_capture(dump_compact(capture), "x") == capture
    assert dump_document(parse_capture(dump_compact(capture), "x")) == dump_document(capture)


def test_keys_are_the_contract() -> None:
    """Scripts read these keys: a rename breaks them."""
    data = to_data(CAPTURES[0])
    assert list(data) == [
        "schema",
        "kind",
        "versions",
        "snippet",
        "target",
        "patches",
        "error",
        "schedules",
        "findings",
        "mode",
        "missing",
    ]
    schedule = next(s for c in CAPTURES for s in to_data(c)["schedules"] if s["kernels"] and s["bufferizes"])
    contract = {
        "schedule": (schedule, "index line copies nodes vmap_map bufferizes kernels"),
        "node": (schedule["nodes"][0], "id op dtype shape src in_ranges out_ranges ambient realized line"),
        "bufferize": (
            schedule["bufferizes"][0],
            "node closed_ranges ambient size bytes addrspace outcome reason decided",
        ),
        "kernel": (
            schedule["kernels"][0],
            "name target source global_size local_size local_bytes threads executed_ops bytes redundancy buffers nodes"
            " lines",
        ),
        "buffer": (schedule["kernels"][0]["buffers"][0], "name size dtype access"),
    }
    for name, (found, keys) in contract.items():
        assert set(keys.split()) <= set(found), name


def changed(path: list[str | int], value: object) -> str:
    data = to_data(next(c for c in CAPTURES if c.schedules and c.schedules[0].kernels))
    place = data
    for step in path[:-1]:
        place = place[step]
    if value is DELETE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(data)


DELETE = object()
NODES, KERNELS = "`$.schedules[0].nodes", "`$.schedules[0].kernels"
WRONG = [
    (changed(["kind"], "diff"), "Invalid enum value 'diff' - at `$.kind`"),
    (
        changed(["schedules", 0, "bufferizes", 0, "outcome"], "lost"),
        "Invalid enum value 'lost' - at `$.schedules[0].bufferizes[0].outcome`",
    ),
    (
        changed(["schedules", 0, "nodes", 11, "realized", "reasons"], [{"nodes": [1]}]),
        f"Object missing required field `rule` - at {NODES}[11].realized.reasons[0]`",
    ),
    ("", "not a vmapdbg capture"),
    ("[]", "has no schema number"),
    ("{}", "has no schema number"),
    ('{"schema": 2}', "schema 2, newer than the 1"),
    ('{"schema": 0}', "schema 0, older than the 1"),
    ('{"schema": 1}', "missing required field `versions`"),
    (changed(["schedules", 0, "nodes", 0, "id"], "x"), f"Expected `int`, got `str` - at {NODES}[0].id`"),
    (changed(["schedules", 0, "nodes", 0, "id"], True), f"Expected `int`, got `bool` - at {NODES}[0].id`"),
    (changed(["schedules", 0, "kernels", 0, "source"], DELETE), f"required field `source` - at {KERNELS}[0]`"),
    (changed(["schedules", 0, "kernels"], None), f"Expected `array`, got `null` - at {KERNELS}`"),
    (changed(["patches"], {"a": "yes"}), "Expected `bool`, got `str` - at `$.patches[...]`"),
    (changed(["snippet"], None), "Expected `str`, got `null` - at `$.snippet`"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=range(len(WRONG)))
def test_an_error_names_the_place_in_a_file_that_is_not_a_capture(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(StoreError) as raised:
        load_capture(file)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unknown_keys_are_ignored() -> None:
    data = to_data(CAPTURES[0])
    assert build_data(Capture, {**data, "later": 1}) == CAPTURES[0]
    assert data["schema"] == SCHEMA


def test_binary_and_missing_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    for name, word in (("b", "not text"), ("missing", "cannot read"), (".", "cannot read")):
        with pytest.raises(StoreError, match=word):
            load_capture(tmp_path / name)


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.json"
    save_capture(CAPTURES[0], file)
    before = file.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match="No space left"):
        write_atomically(file, "half")
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_lone_surrogates_do_not_lose_the_capture() -> None:
    """A path that is no UTF-8 reaches Python as surrogates."""
    odd = replace(CAPTURES[0], snippet="a\udcff.py")
    with pytest.raises(UnicodeEncodeError):
        odd.snippet.encode()
    assert parse_capture(dump_document(odd), "x") == odd


def test_a_capture_that_names_what_it_has_not_is_refused_in_one_line() -> None:
    data = json.loads(dump_document(captures.lost_range()))
    data["schedules"][0]["kernels"][0]["nodes"] = [999]
    with pytest.raises(StoreError, match=r"x is not a vmapdbg capture: .*kernels\.nodes: there is no node 999"):
        parse_capture(json.dumps(data), "x")
    data["schedules"][0]["index"] = 7
    with pytest.raises(StoreError, match="index: expected 0, not 7"):
        parse_capture(json.dumps(data), "x")


def test_data_that_is_nested_too_deeply_is_not_a_capture() -> None:
    with pytest.raises(StoreError, match="nested too deeply"):
        parse_capture("[" * 100_000, "x")


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


def test_a_link_to_nothing_makes_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_output(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "new"
    with pytest.raises(StoreError, match="cannot write"):
        write_output(tmp_path / "no" / "folder", "new")
