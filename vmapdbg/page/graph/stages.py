"""The stages of a graph: what can be drawn of a schedule.

This module imports nothing that draws, so that the command line can name the stages. To add one, write a module of its
name in this folder, with a STAGE, and list it in `StageName`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from vmapdbg.model.vocabulary import StageName

if TYPE_CHECKING:
    from vmapdbg.page.graph.items import DrawnSchedule
    from vmapdbg.page.graph.model import Graph

STAGES: tuple[StageName, ...] = get_args(StageName)


@dataclass(frozen=True)
class Stage:
    """How a stage is drawn.

    `title` is what it is called above the drawing. `build` gets the schedule, the baseline's (None without one), the
    level of folding and the title of the drawing; `last_level` is the furthest that it can be folded. `find_near`
    returns the ids of what is at most some steps from some nodes. `add_legend` explains the kinds of nodes that a graph
    has. `extra_kinds` are the kinds of nodes that stand for nothing of the schedule that no other node stands for.
    `most` is how many nodes, those aside, one can look at; a drawing of more than `pleasant` boxes is folded.
    `level_notes` say for each level what is folded.
    """

    title: str
    build: Callable[[DrawnSchedule, DrawnSchedule | None, int, str], Graph]
    last_level: int
    find_near: Callable[[Graph, Sequence[str], int], set[str]]
    add_legend: Callable[[Graph], Graph]
    extra_kinds: frozenset[str]
    most: int
    pleasant: int
    level_notes: tuple[str, ...]


def load_stage(name: str) -> Stage:
    """Returns the stage of one of STAGES."""
    return import_module(f"vmapdbg.page.graph.{name}").STAGE
