"""Prints explanations: a title, and each decision with its sentences."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vmapdbg.render.text.layout import escape_unsafe
from vmapdbg.why import Explanation, Step


def print_explanations(explanations: Sequence[Explanation], console: Console) -> None:
    """Prints each explanation under its title; sentences are folded to the width of the console."""
    for number, explanation in enumerate(explanations):
        if number:
            console.print()
        console.print(Text(_safe(explanation.title, console), style="bold"))
        for step in explanation.steps:
            _print_step(step, console)


def _print_step(step: Step, console: Console) -> None:
    heading = step.heading
    if not step.sentences:
        console.print(Text(f"  {heading}", style="dim"))
        return
    for index, sentence in enumerate(step.sentences):
        style = "bold red" if " NOT closed" in sentence else ""
        text = Text(_safe(sentence, console), style=style)
        _print_hanging(f"  {heading if index == 0 else '':<15}", text, console)


def _print_hanging(label: str, text: Text, console: Console) -> None:
    width = max(20, console.width - len(label))
    for number, line in enumerate(text.wrap(console, width)):
        shown = Text(label if number == 0 else " " * len(label), style="cyan")
        shown.append_text(line)
        shown.rstrip()
        console.print(shown, no_wrap=True, overflow="ignore", crop=False)


def _safe(value: str, console: Console) -> str:
    return escape_unsafe(value, console.encoding)
