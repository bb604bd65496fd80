"""The files that outputs are kept in, one for each program: its states print much that is the same."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.net.differences import Difference, compare_texts, hide_places
from tests.net.worker import Outputs, observe_program


@dataclass
class Worked:
    """The result of a program: how many outputs were recorded or compared, which of them differ, and how many have no
    recorded output."""

    outputs: int = 0
    differences: list[Difference] = field(default_factory=list[Difference])
    unknown: int = 0


def work_on(
    program: Path, states: Sequence[str], views: Sequence[str], folder: Path, records: bool, edited: bool
) -> Worked:
    """Records the outputs of a program, or compares them; runs in a worker. If the overlay was `edited`, the line
    numbers in it may differ."""
    outputs = observe_program(program, states, views)
    file = folder / f"{program.stem}.json.xz"
    known = read_outputs(file)
    if records:
        merged = {state: {**known.get(state, {}), **outputs.get(state, {})} for state in {**known, **outputs}}
        write_outputs(merged, file)
        return Worked(sum(map(len, outputs.values())))
    worked = Worked()
    for state, texts in outputs.items():
        recorded = known.get(state, {})
        for view, after in texts.items():
            if view not in recorded:
                worked.unknown += 1
                continue
            worked.outputs += 1
            before = recorded[view]
            if edited:
                before, after = hide_places(before), hide_places(after)
            if before != after:
                worked.differences.append(compare_texts(f"{program.stem}/{state}/{view}", before, after))
    return worked


def read_outputs(file: Path) -> Outputs:
    return json.loads(lzma.decompress(file.read_bytes())) if file.exists() else {}


def write_outputs(outputs: Outputs, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(json.dumps(outputs).encode()))
