"""The examples in docs/lint.md are what the tool prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = (Path(__file__).parent.parent.parent / "docs" / "lint.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- fault: (\S+) -->\n```\n(.*?)\n```", DOCS, re.DOTALL)
# tinygrad counts the kernels of one name in a process
NUMBER = re.compile(r"(?<=\d)n\d+\b")


@pytest.mark.parametrize(("name", "message"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_example(outcomes: dict[str, dict[str, Any]], name: str, message: str) -> None:
    assert NUMBER.sub("", outcomes[name]["findings"][0]["message"]) == message


def test_every_code_has_an_example(outcomes: dict[str, dict[str, Any]]) -> None:
    codes = {outcomes[name]["findings"][0]["code"] for name, _ in EXAMPLES}
    assert codes == {f"VD10{i}" for i in range(1, 8)}
