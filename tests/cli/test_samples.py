"""Each sample says in its header what to see, under which patches; here it is looked at.

# expect: prints "TEXT"                  the sample prints a line that ends so
# expect: kernels N                      its last schedule has N compute kernels
# expect: launches A, B, ...             how often each kernel of the capture is launched
# expect: kernel NAME has "TEXT", ...    a kernel of that name has each text in its source
# expect: local N                        its largest kernel has N bytes of LOCAL memory
# expect: node OP "REASON" "TEXT"        a node with that op is realized for that reason, with the text in its detail
# expect[SPEC]: error "TEXT"             with --patches SPEC it fails with that message
# expect[TARGET: SPEC]: ...              with --target TARGET --patches SPEC
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tool import ROOT, RunSample

SAMPLES = sorted((ROOT / "samples").glob("*.py"))
# samples that every run of the tests sees, with other patches and for other targets, too: a fault, an error, a fusion
USUAL = {"lost_range", "unclosed_range", "softmax"}
# and the findings with all patches; each takes more than a second
OFTEN = {"nested_jvp", "whole_gather", "rotary"}
EXPECTATION = re.compile(r"# expect(?:\[(?P<patches>[^]]*)\])?: (?P<what>.*)")


def read_expectations(sample: Path) -> dict[str, list[str]]:
    """Returns `--patches` value -> what is expected with it."""
    found: dict[str, list[str]] = {}
    for match in EXPECTATION.finditer(sample.read_text(encoding="utf-8")):
        found.setdefault(match["patches"] or "all", []).append(match["what"])
    return found


def list_cases() -> Iterator[Any]:
    for sample in SAMPLES:
        for patches, expected in read_expectations(sample).items():
            is_usual = sample.stem in USUAL or (patches == "all" and sample.stem in OFTEN)
            marks = () if is_usual else pytest.mark.slow
            yield pytest.param(sample, patches, expected, id=f"{sample.stem}-{patches}", marks=marks)


def check(expected: str, capture: dict[str, Any], printed: list[str]) -> None:
    kernels = [kernel for schedule in capture["schedules"] for kernel in schedule["kernels"]]
    word, _, rest = expected.partition(" ")
    name, texts = rest.partition(" ")[0], re.findall(r'"([^"]*)"', rest)
    nodes = [node for schedule in capture["schedules"] for node in schedule["nodes"] if node["op"] == name]
    if word == "prints":
        assert any(line.endswith(texts[0]) for line in printed), f"{texts[0]!r} is not in {printed}"
    elif word == "kernels":
        assert len(capture["schedules"][-1]["kernels"]) == int(rest)
    elif word == "launches":
        assert [kernel["launches"] for kernel in kernels] == [int(n) for n in rest.split(",")]
    elif word == "kernel":
        sources = [kernel["source"] for kernel in kernels if kernel["name"] == name]
        assert any(all(text in source for text in texts) for source in sources), sources or f"no kernel {name}"
    elif word == "local":
        assert max(kernel["local_bytes"] for kernel in kernels) == int(rest)
    elif word == "node":
        found = [node["realized"] for node in nodes if node["realized"] is not None]
        assert any(each["reason"] == texts[0] and texts[1] in each["detail"] for each in found), found
    elif word == "unsplit":
        assert any(node["unsplit"] and texts[0] in node["unsplit"]["detail"] for node in nodes), nodes
    else:
        assert word == "error", f"no such expectation: {expected}"
        assert capture["error"] is not None
        assert texts[0] in capture["error"]["message"]


@pytest.mark.parametrize(("sample", "patches", "expected"), list(list_cases()))
def test_sample_shows_what_its_header_says(
    sample: Path, patches: str, expected: list[str], run_sample: RunSample
) -> None:
    """A user who follows the header of a sample sees something else."""
    target, _, spec = patches.rpartition(": ")
    options = ("--json", "--patches", spec, "--target", target or "c")
    done = run_sample("show", f"samples/{sample.name}", *options)
    capture = json.loads(done.stdout)
    for what in expected:
        check(what, capture, done.stderr.splitlines())
    if not any(what.startswith("error") for what in expected):
        assert capture["error"] is None, capture["error"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_sample_has_an_expectation_and_a_story(sample: Path) -> None:
    assert read_expectations(sample), "no expectation in its header"
    text = sample.read_text(encoding="utf-8")
    assert "# What to see:" in text
    assert f"vmapdbg show samples/{sample.name}" in text
    assert f"({sample.name})" in (ROOT / "samples" / "README.md").read_text(encoding="utf-8")
