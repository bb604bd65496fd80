"""Splits source text into lines, and lines into coloured parts. Chooses the lines to show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.token import Comment, Keyword, Name, Number, String

from vmapdbg.install.targets import language_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = tuple[str, str]
"""The CSS class of a piece of a line, empty for plain text, and its text."""

_CLASSES = (
    (Comment, "tc"),
    (Keyword, "tk"),
    (String, "ts"),
    (Number, "tn"),
    (Name.Function, "tf"),
    (Name.Class, "tf"),
    (Name.Builtin, "tb"),
)
Line = TypeVar("Line", bound="DataclassInstance")
_MOST_COLOURED = 60_000
"""A longer text, in characters, stays plain: its colours would be most of the page."""


def keep_near(lines: Sequence[Line], important: Iterable[int], around: int) -> list[Line]:
    """Returns the lines that are at most `around` from an important line; the `gap` of each counts the lines that are
    left out above it."""
    near = {number + step for number in important for step in range(-around, around + 1)}
    shown: list[Line] = []
    gap = 0
    for number, line in enumerate(lines):
        if number in near:
            shown.append(replace(line, gap=gap))
            gap = 0
        else:
            gap += 1
    return shown


def split_python(text: str) -> list[Sequence[Part]]:
    """Returns the lines of a Python file."""
    return _split(text, "python")


def split_kernel(text: str, target: str) -> list[Sequence[Part]]:
    """Returns the lines of a kernel's source for a target; plain if no lexer knows its language.

    Numbers stay plain: a kernel has so many that their colours would be half of the page.
    """
    return _split(text, language_of(target), plain={"tn", "tb", "tf"})


def _split(text: str, language: str | None, plain: Collection[str] = ()) -> list[Sequence[Part]]:
    # splitlines also cuts at a form feed, but Python's line numbers do not
    written = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    if language is None or len(text) > _MOST_COLOURED:
        return [[("", line)] for line in written]
    lines = _colour("\n".join(written), language, plain)
    # a lexer may change the text: then show it without colours
    if ["".join(part for _, part in line) for line in lines] != written:
        return [[("", line)] for line in written]
    return [*lines]


def _colour(text: str, language: str, plain: Collection[str]) -> list[list[Part]]:
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    lines: list[list[Part]] = [[]]
    for token, value in lexer.get_tokens(text):
        style = next((name for kind, name in _CLASSES if token in kind), "")
        if style in plain:
            style = ""
        first, *more = value.split("\n")
        _append(lines[-1], style, first)
        for piece in more:
            lines.append([])
            _append(lines[-1], style, piece)
    return lines


def _append(line: list[Part], style: str, text: str) -> None:
    if not text:
        return
    if line and line[-1][0] == style:
        text = line.pop()[1] + text
    line.append((style, text))
