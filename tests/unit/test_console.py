"""How a command prints: readable colours, the requested width."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import click
import pytest
from rich.color import Color
from rich.style import Style
from rich.syntax import ANSI_DARK

from vmapdbg.commands.shared.console import make_console
from vmapdbg.page.text.layout import LEGIBLE, make_legible

TEXT = Path(__file__).parent.parent.parent / "vmapdbg" / "page" / "text"
_COLOURS = r"(?:bright_)?(?:red|green|yellow|blue|magenta|cyan|black|white)"


def measure_contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """The contrast of the Web Content Accessibility Guidelines: 1 to 21; 3 is enough for bold text."""

    def luminance(colour: tuple[int, int, int]) -> float:
        parts = [c / 255 for c in colour]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def list_styles() -> set[str]:
    """Every style of a renderer that has a colour, and the styles of highlighted source."""
    words = rf'"((?:bold |dim |reverse )*{_COLOURS})"'
    found = {style for file in TEXT.glob("*.py") for style in re.findall(words, file.read_text(encoding="utf-8"))}
    return found | {str(style) for style in ANSI_DARK.values() if style.color is not None}


@pytest.mark.parametrize("style", sorted(list_styles()))
def test_colours_are_legible_on_white_and_on_black(style: str) -> None:
    shown = make_legible(Style.parse(style))
    assert shown.color is not None
    triplet = shown.color.get_truecolor()
    for background in ((255, 255, 255), (0, 0, 0)):
        contrast = measure_contrast((triplet.red, triplet.green, triplet.blue), background)
        assert contrast >= 3, (style, triplet, background)
    # bold and the like stay
    assert shown.without_color == Style.parse(style).without_color


def test_a_colour_has_one_place() -> None:
    assert {"bold red", "yellow", "cyan", "bright_blue"} <= list_styles()
    assert len(set(LEGIBLE.values())) == len(LEGIBLE)
    assert all(Color.parse(name).number is not None for name in LEGIBLE)


def render(text: str, style: str, **display: object) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as file, click.Context(click.Command("show")) as context:
        context.meta.update({f"vmapdbg.{name}": value for name, value in display.items()})
        make_console().print(text, style=style)
    return file.getvalue()


def test_colours_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert render("x", "bold red") == "x\n"
    assert render("x", "bold red", colour="never") == "x\n"
    monkeypatch.setenv("NO_COLOR", "1")
    # the command line says more than the environment
    assert "\x1b[1;31mx" in render("x", "bold red", colour="always")


def test_the_width_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert render("word " * 10, "", width=25).count("\n") == 2
