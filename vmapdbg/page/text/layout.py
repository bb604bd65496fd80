"""Lays text out for a terminal or a pipe: a page of a fixed width, and tables that fold instead of cutting.

Everything becomes a list of lines (rich Text) that are no wider than the page. Only ASCII is drawn, no
boxes, because the output must survive a pipe, a log and a copy. A table that is too wide moves whole columns to a
second line of each row before it folds a cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

_GAP = 2
_BETWEEN = " | "
_MOST_FOLDS = 3
_NARROWEST = 2
_NARROWEST_PAGE = 24
_WIDEST_RULE = 100
# Control and bidirectional characters and lone surrogates: they would move the cursor, colour a pipe, or fail
# to encode.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


_T = TypeVar("_T")
Part = str | Text | tuple[str, str]
"""A part of a line: a plain string, a Text, or a string and its style."""


def escape_unsafe(value: str, encoding: str = "utf-8") -> str:
    """Returns `value` with escapes such as `\\x1b` for characters unsafe in a terminal or missing in `encoding`."""
    if value.isascii() and value.isprintable():
        return value
    value = _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), value.expandtabs(4))
    if encoding.startswith("utf"):
        return value
    return value.encode(encoding, "backslashreplace").decode(encoding)


class Page:
    """Where a renderer writes: `width` columns of a console."""

    def __init__(self, console: Console, *, show_all: bool = False) -> None:
        self.console = console
        self.width = max(console.width, _NARROWEST_PAGE)
        self.show_all = show_all

    @property
    def is_coloured(self) -> bool:
        """Whether colours are shown: not in a pipe, and not with NO_COLOR."""
        return self.console.color_system is not None and not self.console.no_color

    def text(self, value: str, style: str = "") -> Text:
        """Returns the Text of a string that may come from a user: no markup is read, escapes are shown."""
        return Text(escape_unsafe(value, self.console.encoding), style=style)

    def join(self, *parts: Part) -> Text:
        """Returns the parts as one Text."""
        whole = Text()
        for part in parts:
            whole.append_text(self.read(part))
        return whole

    def read(self, part: Part) -> Text:
        """Returns a part as a Text."""
        if isinstance(part, Text):
            return part
        if isinstance(part, str):
            return self.text(part)
        return self.text(*part)

    def choose_first(self, items: Sequence[_T], most: int) -> Sequence[_T]:
        """Returns the items to show: the first `most` of them, all with `show_all`."""
        if self.show_all:
            return items
        return items[:most]

    def wrap(self, *parts: Part, indent: int = 0, hang: int = 0) -> list[Text]:
        """Returns the parts as lines of the page's width, after `indent` spaces; `hang` more after the first."""
        text = self.join(*parts)
        if indent + text.cell_len <= self.width and "\n" not in text.plain:
            return [_indent(text, indent)]
        head = _fold(self.console, text, self.width - indent)
        if len(head) == 1 or not hang:
            return [_indent(line, indent) for line in head]
        # the first line has `hang` more columns than the others, so the rest is folded again
        first, rest = head[0], text[len(head[0].plain) :]
        rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
        more = _fold(self.console, rest, self.width - indent - hang)
        return [_indent(first, indent), *(_indent(line, indent + hang) for line in more)]

    def head(self, title: str, about: str) -> list[Text]:
        """Returns the title of a section, and a few words about it."""
        return self.wrap((title, "bold"), (f"  {about}", "dim"), hang=2)

    def rule(self, *parts: Part) -> list[Text]:
        """Returns a heading with a line drawn from its end, as wide as the page, at most 100 columns."""
        heading = self.join(*parts, " ")
        heading.append("=" * (min(self.width, _WIDEST_RULE) - heading.cell_len), style="bold")
        return self.wrap(heading, hang=3)

    def show(self, lines: Iterable[Text]) -> None:
        """Prints lines that already fit."""
        self.console.print(_Lines(list(lines)), soft_wrap=True)


class _Lines:
    """Prints each line as it is: no padding to the width, no second wrapping."""

    def __init__(self, lines: list[Text]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            if console.color_system is None:
                yield Segment(line.plain.rstrip() + "\n")
                continue
            line.rstrip()
            yield from line.render(console, end="\n")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `comfort` is the width that it keeps before others leave the row, `most` the width it never exceeds.
    Columns with `leaves` go to a second line when the page is too narrow, the smallest number first, as
    `label value` (`label` None: the title). `optional` ones are left out instead. `own_line` is for
    sentences. A cell that does not fit is first folded before `split`.
    """

    title: str
    right: bool = False
    comfort: int = 12
    most: int = 48
    leaves: int | None = None
    label: str | None = None
    optional: bool = False
    own_line: bool = False
    split: str = ""


@dataclass(frozen=True)
class Row:
    """Cells in the order of the columns; below them, over the whole width, facts and notes.

    Facts share a line if they fit; each note has a line of its own.
    """

    cells: Sequence[Part]
    facts: Sequence[Part] = ()
    notes: Sequence[Part] = ()
    style: str = ""


def lay_out_table(page: Page, columns: Sequence[Column], rows: Sequence[Row], *, indent: int = 2) -> list[Text]:
    """Returns a table as lines: titles, then the rows. Columns without any content do not appear."""
    table = [[page.read(cell) for cell in row.cells] for row in rows]
    used = [i for i in range(len(columns)) if any(cells[i].plain for cells in table)]
    natural = {i: _measure(columns[i], [cells[i] for cells in table]) for i in used}
    inside = _choose_columns(columns, natural, page.width - indent)
    widths = _choose_widths({i: natural[i] for i in inside}, columns, page.width - indent)
    titles = {i: Text(columns[i].title, style="dim") for i in inside}
    lines = list(_lay_out_cells(page, columns, widths, titles, indent))
    below = [i for i in used if i not in widths and not columns[i].optional]
    hang = indent
    if widths:
        hang += next(iter(widths.values())) + _GAP
    for row, cells in zip(rows, table, strict=True):
        lines += _lay_out_row(page, columns, row, cells, widths, below, indent, min(hang, page.width // 3))
    return lines


def _lay_out_row(
    page: Page,
    columns: Sequence[Column],
    row: Row,
    texts: Sequence[Text],
    widths: dict[int, int],
    below: Sequence[int],
    indent: int,
    hang: int,
) -> Iterator[Text]:
    cells = {i: texts[i] for i in widths}
    # a cell that would fold many times goes below, too, and has the whole width there
    long = [i for i, cell in cells.items() if len(_fold(page.console, cell, widths[i], columns[i].split)) > _MOST_FOLDS]
    short: list[Text] = []
    own: list[Text] = []
    for i in sorted([*below, *long]):
        whole, column = texts[i], columns[i]
        if not whole.plain:
            continue
        label = column.label
        if label is None:
            label = column.title
        if label:
            whole = page.join((f"{label} ", "dim"), whole)
        if column.own_line or i in long:
            own.append(whole)
        else:
            short.append(whole)
    cells |= {i: Text("below", style="dim") for i in long}
    for line in _lay_out_cells(page, columns, widths, cells, indent):
        line.stylize_before(row.style)
        yield line
    facts = _pack([*short, *map(page.read, row.facts)], page.width - hang)
    for note in [*own, *facts, *row.notes]:
        yield from page.wrap(note, indent=hang, hang=2)


def _pack(facts: Sequence[Text], width: int) -> list[Text]:
    """Joins neighbours while they fit into `width`."""
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + len(_BETWEEN) + fact.cell_len <= width:
            lines[-1] = Text(_BETWEEN).join([lines[-1], fact])
        else:
            lines.append(fact)
    return lines


def _lay_out_cells(
    page: Page, columns: Sequence[Column], widths: dict[int, int], cells: dict[int, Text], indent: int
) -> Iterator[Text]:
    folded = {i: _fold(page.console, cells[i], widths[i], columns[i].split) for i in widths}
    for cells_of_line in zip_longest(*folded.values(), fillvalue=Text()):
        line = Text(" " * indent)
        for i, cell in zip(folded, cells_of_line, strict=True):
            space = Text(" " * max(widths[i] - cell.cell_len, 0))
            padded = space + cell if columns[i].right else cell + space
            line.append_text(padded)
            line.append(" " * _GAP)
        line.rstrip()
        yield line


def _measure(column: Column, cells: Sequence[Text]) -> int:
    widest = max((max(line.cell_len for line in cell.split("\n")) for cell in cells if cell.plain), default=0)
    return max(min(widest, column.most), len(column.title))


def _choose_columns(columns: Sequence[Column], natural: dict[int, int], width: int) -> list[int]:
    inside = list(natural)
    for i in sorted((i for i in natural if columns[i].leaves is not None), key=lambda i: columns[i].leaves or 0):
        needed = sum(min(natural[j], columns[j].comfort) for j in inside) + _GAP * (len(inside) - 1)
        if needed > width and len(inside) > 1:
            inside.remove(i)
    return inside


def _choose_widths(natural: dict[int, int], columns: Sequence[Column], width: int) -> dict[int, int]:
    widths = {i: min(wanted, columns[i].comfort) for i, wanted in natural.items()}
    free = width - _GAP * (len(widths) - 1) - sum(widths.values())
    while free < 0 and max(widths.values()) > _NARROWEST:
        widest = max(widths, key=lambda i: widths[i])
        widths[widest] -= 1
        free += 1
    # The columns that want least are filled first, so that one endless cell does not starve the others.
    short = sorted((i for i in widths if widths[i] < natural[i]), key=lambda i: natural[i] - widths[i])
    for number, i in enumerate(short):
        more = min(natural[i] - widths[i], max(free, 0) // (len(short) - number))
        widths[i] += more
        free -= more
    return widths


def _fold(console: Console, text: Text, width: int, split: str = "") -> list[Text]:
    if text.cell_len <= width and "\n" not in text.plain:
        return [text]
    if split and split in text.plain:
        middle = text.plain.index(split)
        left, right = text.divide([middle])
        return [*_fold(console, left, width), *_fold(console, right, width)]
    lines = list(text.wrap(console, max(width, 1), overflow="fold"))
    for line in lines:
        line.rstrip()
    return lines


def _indent(text: Text, count: int) -> Text:
    if not count:
        return text
    return Text(" " * count) + text
