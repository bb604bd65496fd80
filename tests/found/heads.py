"""The heads of the programs: comments above the code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.hunt.runner import Outcome

FOLDER = Path(__file__).parent / "programs"
RELEASES = ("0.12.0", "0.13.0", "0.14.0", "patches")


@dataclass(frozen=True)
class Head:
    """`told` are the lines written by hand: the cause, and how it was found. `kinds` has the result on each tinygrad,
    `ok` if it is right, and `says` what the reference says about it."""

    told: tuple[str, ...]
    kinds: dict[str, str]
    says: dict[str, str]


def find_programs() -> list[Path]:
    return sorted(FOLDER.glob("*.py"))


def read_head(text: str) -> Head:
    told: list[str] = []
    kinds: dict[str, str] = {}
    says: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            break
        found = re.fullmatch(r"# on (\S+): (\w+)(?:: (.*))?", line)
        if found is None:
            told.append(line[2:])
        else:
            kinds[found[1]], says[found[1]] = found[2], found[3] or ""
    return Head(tuple(told), kinds, says)


def write_head(text: str, outcomes: dict[str, Outcome]) -> str:
    """Returns the program with new lines about its results."""
    lines = text.splitlines()
    told = [f"# {line}" for line in read_head(text).told]
    code = [line for line in lines if not line.startswith("# ")]
    new = [describe(name, outcome) for name, outcome in outcomes.items()]
    return "\n".join([*told, *new, *code]) + "\n"


def describe(name: str, outcome: Outcome) -> str:
    said = outcome.detail.split("\n")[0]
    if outcome.kind == "hang":
        said = f"in {outcome.trace[-1]}" if outcome.trace else said
    if not outcome.is_fault:
        return f"# on {name}: {outcome.kind}"
    return f"# on {name}: {outcome.kind}: {said[:150]}".rstrip()
