"""Lays text out for a terminal or a pipe: lines (rich Text) no wider than the page, in ASCII without boxes: output must
survive a pipe, a log and a copy. A table that is too wide moves columns to a second line before it folds."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeVar

from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from vmapdbg.model.capture import Finding
from vmapdbg.model.wording import escape_unsafe, format_plural
from vmapdbg.page.format import Places, format_ratio

ALERT = "bold red"
NOTE = "cyan"
BEFORE = "red"
AFTER = "green"
CHANGED = "yellow"

_GAP = 2
_BETWEEN = " | "
_MOST_FOLDS = 3
_NARROWEST = 2
_NARROWEST_PAGE = 24
_WIDEST_RULE = 100


_T = TypeVar("_T")
_Amount = TypeVar("_Amount", int, float)
Piece = str | Text | tuple[str, str]
"""A part of a line: a plain string, a Text, or a string and its style."""


class Page:
    """Collects lines of `width` columns and prints them on a console. `places` has short names of the user's lines."""

    def __init__(self, console: Console, places: Places | None = None, *, show_all: bool = False) -> None:
        self.console = console
        self.places = places or Places((), "")
        self.width = max(console.width, _NARROWEST_PAGE)
        self.show_all = show_all
        self.lines: list[Text] = []

    # *** parts of a line

    def text(self, value: str, style: str = "") -> Text:
        """Returns the Text of a string that may come from a user: no markup is read, escapes are shown."""
        return Text(escape_unsafe(value, self.console.encoding), style=style)

    def read(self, part: Piece) -> Text:
        """Returns a part as a Text."""
        return part if isinstance(part, Text) else self.text(part) if isinstance(part, str) else self.text(*part)

    def join(self, *parts: Piece) -> Text:
        """Returns the parts as one Text."""
        return Text().join(map(self.read, parts))

    def place(self, line: str | None) -> Piece:
        """Returns a line of the user as `  [file:12]`, nothing for None."""
        return self.places.format(line, "  [{}]"), NOTE

    def change(self, before: str, after: str, ratio: str = "") -> Text:
        """Returns `before -> after` in two colours, or the value alone if both sides are the same."""
        return self.text(after) if before == after else self.join((before, BEFORE), " -> ", (after, AFTER), ratio)

    def label(self, name: str, value: Piece) -> Text:
        """Returns a value after its name, if it has one, which is dim; nothing for an empty value."""
        text = self.read(value)
        return self.join((f"{name} ", "dim"), text) if name and text else text

    def finding(self, found: Finding, advice: str = "", style: str = ALERT) -> Text:
        """Returns the code of a finding, its message and its line."""
        return self.join((found.code, style), f" {found.message}{self.places.format(found.line, ' ({})')}{advice}")

    def compare(self, before: _Amount, after: _Amount, write: Callable[[_Amount], str]) -> Text:
        """Returns `1,000 -> 500 (0.50x)`, or the amount alone if both are written alike."""
        return self.change(write(before), write(after), format_ratio(before, after))

    # *** lines

    def add(self, *parts: Piece, indent: int = 0, hang: int = 2, gap: bool = False) -> None:
        """Adds the parts, wrapped, `hang` more spaces after the first line, below a `gap`; no parts: an empty line."""
        self.lines += [Text()] * gap + self.wrap(*parts, indent=indent, hang=hang)

    def head(self, title: str, *about: Piece) -> None:
        """Adds an empty line, the title of a section, and a few words about it, which are dim if they have no style."""
        words = [(part, "dim") if isinstance(part, str) else part for part in about]
        self.add((title, "bold"), "  " if about else "", *words, gap=True)

    def rule(self, *parts: Piece) -> None:
        """Adds an empty line, and a heading with a line drawn to the end of the page, at most 100 columns wide."""
        heading = self.join(*parts, " ")
        heading.append("=" * (min(self.width, _WIDEST_RULE) - heading.cell_len), style="bold")
        self.add(heading, hang=3, gap=True)

    def first(
        self, items: Sequence[_T], most: int, more: str, *, noun: str = "", indent: int = 2, style: str = "dim"
    ) -> Iterator[_T]:
        """Yields the first `most` items, or with `show_all` all; then adds `more` with the number of others."""
        if self.show_all:
            most = len(items)
        yield from items[:most]
        if rest := len(items[most:]):
            count = format_plural(rest, noun) if noun else str(rest)
            self.add((more.format(count), style), indent=indent)

    def add_each(self, lines: Iterable[str], style: str = "", *, indent: int = 0, hang: int = 2) -> None:
        """Adds each string as lines of its own."""
        for line in lines:
            self.add((line, style), indent=indent, hang=hang)

    def wrap(self, *parts: Piece, indent: int = 0, hang: int = 0) -> list[Text]:
        """Returns the parts as lines of the page's width, after `indent` spaces; `hang` more after the first."""
        text = self.join(*parts)
        head = _fold(self.console, text, self.width - indent)
        if len(head) == 1 or not hang:
            return [Text(" " * indent) + line for line in head]
        # the first line has `hang` more columns than the others, so the rest is folded again
        rest = text[len(head[0].plain) :]
        rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
        more = _fold(self.console, rest, self.width - indent - hang)
        return [Text(" " * indent) + head[0], *(Text(" " * (indent + hang)) + line for line in more)]

    def print(self) -> None:
        """Prints the lines that were added since the last call."""
        self.console.print(self, soft_wrap=True)
        self.lines = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields each line as it is: no padding to the width, no second wrapping."""
        for line in self.lines:
            line.rstrip()
            yield from [Segment(f"{line.plain}\n")] if console.color_system is None else line.render(console, end="\n")

    def table(
        self, rows: "Iterable[Row]", most: int = sys.maxsize, more: str = "", *, noun: str = "", indent: int = 2
    ) -> None:
        """Adds a table: the titles of the columns, then the `first` rows. Columns without any content do not appear."""
        start = len(self.lines)
        shown = list(self.first(list(rows), most, more, noun=noun))
        if shown:
            self.lines[start:start] = _Table(self, shown, indent).lay_out()


# *** tables


class Cell(NamedTuple):
    """A cell of a table; the cells of the first row decide how each column is drawn.

    `comfort` is the width that a column keeps before others leave the row, `most` the width it never exceeds. If the
    page is too narrow, columns with `leaves` go to a second line, the smallest number first, as `label content`
    (`label` None: the title); `optional` ones are left out. `own_line` is for sentences."""

    title: str
    content: Piece
    right: bool = False
    comfort: int = 12
    most: int = 48
    leaves: int | None = None
    label: str | None = None
    optional: bool = False
    own_line: bool = False


class Row:
    """A row of a table, and below it the facts (several on a line) and notes (a line each) that are not empty."""

    def __init__(self, *cells: Cell, facts: Sequence[Piece] = (), notes: Sequence[Piece] = (), style: str = "") -> None:
        self.cells, self.facts, self.notes, self.style = cells, facts, notes, style


class _Table:
    """A table of a page: `columns` are the cells of its first row, `widths` the width of each column in the row."""

    def __init__(self, page: Page, rows: Sequence[Row], indent: int) -> None:
        self.page, self.rows, self.indent = page, rows, indent
        self.columns = rows[0].cells
        self.texts = [[page.read(cell.content) for cell in row.cells] for row in rows]
        self.used = [i for i in range(len(self.columns)) if any(cells[i].plain for cells in self.texts)]
        self.widths = self._choose_widths(page.width - indent)

    def lay_out(self) -> Iterator[Text]:
        """Yields the lines."""
        yield from self._lay_out_cells({i: Text(self.columns[i].title, style="dim") for i in self.widths})
        for number, row in enumerate(self.rows):
            yield from self._lay_out_row(row, self.texts[number])

    def _lay_out_row(self, row: Row, texts: Sequence[Text]) -> Iterator[Text]:
        page, cells = self.page, {i: texts[i] for i in self.widths}
        # a cell that would fold many times goes below, too, and has the whole width there
        long = [i for i, cell in cells.items() if len(_fold(page.console, cell, self.widths[i])) > _MOST_FOLDS]
        facts: list[Text] = []
        notes: list[Text] = []
        for i in self.used:
            column, whole = self.columns[i], texts[i]
            is_below = i not in self.widths and not column.optional
            if not whole.plain or not (is_below or i in long):
                continue
            below = notes if column.own_line or i in long else facts
            below.append(page.label(column.title if column.label is None else column.label, whole))
        cells |= {i: Text("below", style="dim") for i in long}
        for line in self._lay_out_cells(cells):
            line.stylize_before(row.style)
            yield line
        first = [width + _GAP for width in self.widths.values()][:1]
        hang = min(self.indent + sum(first), page.width // 3)
        packed = _pack([*facts, *filter(None, map(page.read, row.facts))], page.width - hang)
        for note in filter(None, [*notes, *packed, *map(page.read, row.notes)]):
            yield from page.wrap(note, indent=hang, hang=2)

    def _lay_out_cells(self, cells: dict[int, Text]) -> Iterator[Text]:
        folded = {i: _fold(self.page.console, cells[i], width) for i, width in self.widths.items()}
        for cells_of_line in zip_longest(*folded.values(), fillvalue=Text()):
            line = Text(" " * self.indent)
            for i, cell in zip(folded, cells_of_line, strict=True):
                space = Text(" " * max(self.widths[i] - cell.cell_len, 0))
                line.append_text(space + cell if self.columns[i].right else cell + space)
                line.append(" " * _GAP)
            line.rstrip()
            yield line

    def _choose_widths(self, room: int) -> dict[int, int]:
        natural = {i: self._measure(i) for i in self.used}
        widths = {i: min(wanted, self.columns[i].comfort) for i, wanted in natural.items()}
        leaving = [i for i in self.used if self.columns[i].leaves is not None]
        for i in sorted(leaving, key=lambda i: self.columns[i].leaves or 0):
            if sum(widths.values()) + _GAP * (len(widths) - 1) > room and len(widths) > 1:
                del widths[i]
        free = room - _GAP * (len(widths) - 1) - sum(widths.values())
        while free < 0 and max(widths.values()) > _NARROWEST:
            widths[max(widths, key=lambda i: widths[i])] -= 1
            free += 1
        # The columns that want least are filled first, so that one endless cell does not starve the others.
        short = sorted((i for i in widths if widths[i] < natural[i]), key=lambda i: natural[i] - widths[i])
        for number, i in enumerate(short):
            more = min(natural[i] - widths[i], max(free, 0) // (len(short) - number))
            widths[i] += more
            free -= more
        return widths

    def _measure(self, i: int) -> int:
        cells = [cells[i] for cells in self.texts if cells[i].plain]
        widest = max((line.cell_len for cell in cells for line in cell.split("\n")), default=0)
        return max(min(widest, self.columns[i].most), len(self.columns[i].title))


def _pack(facts: Sequence[Text], width: int) -> list[Text]:
    """Joins neighbours while they fit into `width`."""
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + len(_BETWEEN) + fact.cell_len <= width:
            fact = Text(_BETWEEN).join([lines.pop(), fact])
        lines.append(fact)
    return lines


def _fold(console: Console, text: Text, width: int) -> list[Text]:
    if text.cell_len <= width and "\n" not in text.plain:
        return [text]
    lines = list(text.wrap(console, max(width, 1), overflow="fold"))
    for line in lines:
        line.rstrip()
    return lines


# *** colours

LEGIBLE = {"red": 160, "green": 28, "yellow": 130, "blue": 27, "magenta": 133, "cyan": 31, "bright_black": 244}
"""One of the 16 colours -> the number of its replacement among the 256, also for its bright form."""


class LegibleConsole(Console):
    """Shows the fixed colours of `LEGIBLE` instead of the terminal's 16, some of which cannot be read on white."""

    def get_style(self, name: str | Style, *, default: Style | str | None = None) -> Style:
        return make_legible(super().get_style(name, default=default))

    def on_broken_pipe(self) -> None:
        """Raises if the reader closed stdout: rich would exit with 1. Drops the rest if the reader closed the pager."""
        if self.file in (sys.stdout, sys.stderr):
            raise
        self.quiet = True


@functools.cache
def make_legible(style: Style) -> Style:
    """Returns a style with a colour that can be read on white and on black."""
    color = style.color
    if color is None:
        return style
    number = LEGIBLE.get(color.name, LEGIBLE.get(color.name.removeprefix("bright_")))
    return style if number is None else style + Style(color=Color.from_ansi(number))
