"""Source text cut into lines, lines into coloured parts, and which lines are shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.token import Comment, Keyword, Name, Number, String

from vmapdbg.page.text.code import LEXERS

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
_MOST_COLOURED = 60_000
"""A longer text, in characters, stays plain: its colours would be most of the page."""


def choose_near(count: int, told: Iterable[int], around: int) -> Iterator[tuple[int, int]]:
    """Yields which of `count` lines, from 0, are at most `around` from one of `told`, each with how many are left out
    before it."""
    near = {number + step for number in told for step in range(-around, around + 1)}
    gap = 0
    for number in range(count):
        if number in near:
            yield number, gap
            gap = 0
        else:
            gap += 1


def split_python(text: str) -> list[Sequence[Part]]:
    """Returns the lines of a Python file."""
    return _split(text, "python")


def split_kernel(text: str, target: str) -> list[Sequence[Part]]:
    """Returns the lines of a kernel's source for a target; plain where nothing knows its language.

    Numbers stay plain: a kernel is full of them, and their colours would be half of the page.
    """
    return _split(text, LEXERS.get(target.lower()), plain={"tn", "tb", "tf"})


def _split(text: str, language: str | None, plain: Collection[str] = ()) -> list[Sequence[Part]]:
    # splitlines would also cut at a form feed, and Python's own line numbers would not agree
    written = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    if language is None or len(text) > _MOST_COLOURED:
        return [[("", line)] for line in written]
    lines = _colour("\n".join(written), language, plain)
    # a lexer may change the text; colours are not worth that
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
