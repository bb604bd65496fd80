"""Prints explanations: a title, and on each topic its sentences."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from vmapdbg.page.text.layout import ALERT, NOTE, Page
from vmapdbg.page.why import Explanation

_LABEL = 17


def print_explanations(explanations: Sequence[Explanation], console: Console) -> None:
    """Prints each explanation under its title; sentences are folded to the width of the console."""
    page = Page(console)
    for position, explanation in enumerate(explanations):
        if position:
            page.add()
        page.add((explanation.title, "bold"), hang=0)
        for step in explanation.steps:
            if not step.sentences:
                page.add(("no boundary: no kernel reads another one's buffer", "dim"), indent=2)
            label = f"  {step.topic:<15}"
            for number, sentence in enumerate([*step.sentences, *step.alerts]):
                style = NOTE if number < len(step.sentences) else ALERT
                page.add((label, NOTE), (sentence, style), hang=_LABEL)
                label = " " * _LABEL
    page.print()
