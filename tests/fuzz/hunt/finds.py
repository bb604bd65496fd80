"""The finds, grouped by cause as far as it is known, in files with one line for each find. To merge the files of
several machines, put them into one folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Find:
    """A program that fails, made small. `on` has its result on each tinygrad; finds of the same `cause` share it;
    `drawn` is the seed and the number."""

    kind: str
    release: str
    cause: str
    detail: str
    source: str
    on: dict[str, str]
    drawn: str
    seconds: float


_NO_STEP = re.compile(
    r"\s*(x\d+ = |print|import|from|def |return|right|got|for |np\.|jitted|    \w+ = \w+ \+ 1$|Tensor\.realize)"
)
MOST_ALIKE = 12
"""Of one group so many are made small; the others are counted."""


def name_cause(kind: str, signature: str, detail: str, source: str) -> str:
    """Crashes and hangs are known by their place; wrong values by the ops of the smallest program, and by what is
    wrong: an output, an assigned buffer, or a buffer without an assign."""
    if kind in ("crash", "hang"):
        return signature
    what = re.search(r": (output|assigned|input) \d", detail)
    return " ".join([kind, *([what[1]] if what else []), *sorted(find_ops(source))])


def name_group(kind: str, release: str, source: str) -> str:
    """What finds have in common before they are made small."""
    has = [word for word in ("assign", "] = ", "] += ", "TinyJit(", "Variable(") if word in source]
    return f"{kind} {release} {bool(has)}"


def find_ops(source: str) -> set[str]:
    """The methods and operators of a program's steps, without how its inputs are made and its results realized."""
    ops: set[str] = set()
    for line in source.splitlines():
        if _NO_STEP.match(line):
            continue
        ops.update(re.findall(r"\.([a-z_0-9]+)\(", line))
        ops.update("setitem" for _ in re.findall(r"^\s*\w+\[[^]]*\] [+*]?= ", line))
    return ops - {"realize", "bind", "array", "astype", "numpy"}


def add_find(file: Path, find: Find) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(asdict(find)) + "\n")


def read_finds(folder: Path) -> Iterator[Find]:
    for file in sorted(folder.glob("finds-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield Find(**json.loads(line))


def merge(finds: Iterable[Find]) -> dict[str, list[Find]]:
    """The finds of each cause, the shortest program first; the causes of most finds first."""
    causes: dict[str, list[Find]] = {}
    for find in finds:
        causes.setdefault(find.cause, []).append(find)
    for found in causes.values():
        found.sort(key=lambda find: len(find.source))
    return dict(sorted(causes.items(), key=lambda item: -len(item[1])))


def describe(cause: str, finds: list[Find]) -> str:
    first = finds[0]
    on = ", ".join(f"{name} {kind}" for name, kind in first.on.items())
    return f"## {len(finds)} x {cause}\n# {first.drawn}; {on}\n# {first.detail[:300]}\n{first.source}"
