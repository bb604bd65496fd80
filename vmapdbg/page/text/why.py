"""Prints explanations: a title, and on each topic its sentences."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vmapdbg.page.text.layout import escape_unsafe
from vmapdbg.page.text.view import ALERT
from vmapdbg.page.why import Explanation, Step


def print_explanations(explanations: Sequence[Explanation], console: Console) -> None:
    """Prints each explanation under its title; sentences are folded to the width of the console."""
    for position, explanation in enumerate(explanations):
        if position:
            console.print()
        console.print(Text(_safe(explanation.title, console), style="bold"))
        for step in explanation.steps:
            _print_step(step, console)


def _print_step(step: Step, console: Console) -> None:
    if not step.sentences:
        console.print(Text("  no boundary: no kernel reads another one's buffer", style="dim"))
    label = f"  {step.topic:<15}"
    for number, sentence in enumerate([*step.sentences, *step.alerts]):
        style = "" if number < len(step.sentences) else ALERT
        text = Text(_safe(sentence, console), style=style)
        for line in text.wrap(console, max(20, console.width - len(label))):
            shown = Text(label, style="cyan")
            shown.append_text(line)
            shown.rstrip()
            console.print(shown, no_wrap=True, overflow="ignore", crop=False)
            label = " " * len(label)


def _safe(value: str, console: Console) -> str:
    return escape_unsafe(value, console.encoding)
