"""The lifetime picture: which buffers of the peak have memory when. As text, and as SVG."""

from html import escape
from itertools import pairwise

from vmapdbg.model.capture import LiveBuffer, Memory
from vmapdbg.model.wording import cut_end
from vmapdbg.page.format import Places, format_bytes

_MOST_ROWS = 12
_LEVELS = " .:-=+*#@"
_LABEL, _PLOT, _COLUMN, _ROW, _CURVE = 250, 640, 2, 18, 90
"""Pixels of the SVG: labels, all columns, the narrowest column, the height of a row and of the curve."""
_BARS = {"-": (4, "#9aa4b0"), "=": (12, "#3f78b5")}
"""The height and the colour of a bar in the SVG, by its character in the text."""


def name_buffer(buffer: LiveBuffer, places: Places) -> str:
    """Returns the name of the Tensor that holds a buffer, else its line."""
    return buffer.name or places.format(buffer.value.line) or buffer.device


class Picture:
    """The largest buffers at the peak, in columns of launches from `first` to `last`."""

    def __init__(self, memory: Memory, places: Places) -> None:
        self.memory, self.rows = memory, memory.live[:_MOST_ROWS]
        self.labels = [f"{format_bytes(row.value.bytes):>9} {name_buffer(row, places)}" for row in self.rows]
        # of a long run: when the buffers come that it frees again, unless all stay
        passing = [row for row in self.rows if row.until < memory.launches or row.is_planned]
        if not any(row.since <= memory.at.launch <= row.until for row in passing):
            passing = []
        self.first = min((row.since for row in passing), default=0)
        self.last = max((row.until for row in passing), default=max(memory.launches, memory.at.launch))

    def list_columns(self, first: int, last: int, count: int) -> range:
        """Returns the columns, of `count`, from a launch to another."""
        start, end = (
            min(max((one - self.first) * count // (self.last + 1 - self.first), 0), count - 1) for one in (first, last)
        )
        return range(start, end + 1)

    def list_bars(self, row: LiveBuffer, count: int) -> list[tuple[str, range]]:
        """Returns the columns in which a buffer has memory, and the columns in which launches use it."""
        bars = [("-", self.list_columns(row.since, row.until, count))]
        first, last = row.first, row.last
        if first is not None and last is not None and first.launch <= self.last and last.launch >= self.first:
            bars.append(("=", self.list_columns(first.launch, last.launch, count)))
        return bars

    def list_levels(self, count: int) -> list[float]:
        """Returns the most memory in each column, as a share of the peak."""
        levels = [0.0] * count
        for (launch, size), (after, _) in pairwise([*self.memory.timeline, (self.last + 1, 0)]):
            if launch <= self.last and after > self.first:
                for column in self.list_columns(launch, after - 1, count):
                    levels[column] = max(levels[column], size / max(self.memory.peak, 1))
        return levels

    def draw_text(self, width: int) -> list[str]:
        """Returns lines of `width` characters: the level of the memory, the buffers, and the peak (`^`)."""
        label = min(max(map(len, [*self.labels, "all memory"])), max(width // 3, 12))
        count = max(min(width - label - 2, self.last + 1 - self.first), 1)
        steps = len(_LEVELS) - 1
        lines = [
            "all memory".ljust(label + 2) + "".join(_LEVELS[-int(-x * steps // 1)] for x in self.list_levels(count))
        ]
        for row, name in zip(self.rows, self.labels, strict=True):
            cells = [" "] * count
            for sign, columns in self.list_bars(row, count):
                cells[columns.start : columns.stop] = sign * len(columns)
            lines.append(cut_end(name, label).ljust(label + 2) + "".join(cells))
        at = self.memory.at.launch
        return [*lines, " " * (label + 2 + self.list_columns(at, at, count).start) + "^"]

    def draw_svg(self) -> str:
        """Returns the picture as an SVG element without a style sheet: its colours are attributes of the shapes."""
        count = max(min(_PLOT // _COLUMN, self.last + 1 - self.first), 1)
        wide, height, at = _PLOT / count, _CURVE + _ROW * (len(self.rows) + 2), self.memory.at.launch
        points = [f"{_LABEL},{_CURVE}"]
        for column, level in enumerate(self.list_levels(count)):
            x, y = _LABEL + column * wide, _CURVE - (_CURVE - 14) * level
            points.append(f"{x:.1f},{y:.1f} {x + wide:.1f},{y:.1f}")
        points.append(f"{_LABEL + _PLOT},{_CURVE}")
        shapes = [f'<polygon points="{" ".join(points)}" fill="#7aa6d6" fill-opacity="0.55"/>']
        shapes.append(_text(0, 24, f"peak {format_bytes(self.memory.peak)}"))
        for number, (row, name) in enumerate(zip(self.rows, self.labels, strict=True)):
            middle = _CURVE + _ROW * (number + 0.5) + 8
            shapes.append(_text(0, middle + 4, cut_end(name, 38), name))
            for sign, columns in self.list_bars(row, count):
                tall, fill = _BARS[sign]
                place = f'x="{_LABEL + columns.start * wide:.1f}" y="{middle - tall / 2:.1f}"'
                shapes.append(f'<rect {place} width="{len(columns) * wide:.1f}" height="{tall}" fill="{fill}"/>')
        x = _LABEL + (self.list_columns(at, at, count).start + 0.5) * wide
        shapes.append(f'<path d="M{x:.1f} 4V{height - _ROW}" stroke="#c0392b" stroke-dasharray="3 3" fill="none"/>')
        shapes.append(_text(_LABEL, height - 4, f"launch {self.first:,}"))
        shapes.append(_text(_LABEL + _PLOT, height - 4, f"{self.last:,}", anchor="end"))
        size = f'viewBox="0 0 {_LABEL + _PLOT + 10} {height}" width="{_LABEL + _PLOT + 10}" height="{height}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(shapes)}</svg>\n'


def _text(x: float, y: float, text: str, title: str = "", anchor: str = "start") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    style = 'font-family="monospace" font-size="11" fill="#7b828c"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{told}{escape(text)}</text>'
