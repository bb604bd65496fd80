"""The lifetime picture: which buffers of the peak have memory when. As text, and as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise

from vmapdbg.model.capture import LiveBuffer, Memory
from vmapdbg.page.format import Places, format_bytes

_MOST_ROWS = 12
_LEVELS = " .:-=+*#@"
_USED, _HELD = "=", "-"
_LABEL, _PLOT, _ROW, _CURVE = 250, 640, 18, 90
"""Pixels of the SVG: labels, the width of the picture, the height of a row and of the curve."""


def name_buffer(buffer: LiveBuffer, places: Places) -> str:
    """Returns the name of the Tensor that holds a buffer, else its line."""
    return buffer.name or places.format(buffer.value.line) or buffer.device


@dataclass(frozen=True)
class Picture:
    """The largest buffers at the peak and the launches, `start` to `end` (excluded), in which they come and go."""

    memory: Memory
    places: Places

    @property
    def rows(self) -> tuple[LiveBuffer, ...]:
        return self.memory.live[:_MOST_ROWS]

    @property
    def start(self) -> int:
        return min((row.since for row in self._passing()), default=0)

    @property
    def end(self) -> int:
        return max((row.until for row in self._passing()), default=max(self.memory.launches, self.memory.at.launch)) + 1

    def _passing(self) -> list[LiveBuffer]:
        """The buffers that the run lets go of, and what leads to them: of a long run the picture shows these launches.
        Nothing if all buffers stay."""
        found = [row for row in self.rows if row.until < self.memory.launches or row.is_planned]
        return found if any(row.since <= self.memory.at.launch <= row.until for row in found) else []

    def level_at(self, first: int, last: int) -> int:
        """Returns the most bytes from a launch to another."""
        before = [size for launch, size in self.memory.timeline if launch <= first][-1:]
        return max([*before, *(size for launch, size in self.memory.timeline if first <= launch <= last)], default=0)

    # *** text

    def draw_text(self, width: int) -> list[str]:
        """Returns lines of `width` characters: the level of the memory, the buffers, and the peak (`^`)."""
        labels = [f"{format_bytes(row.value.bytes):>9} {name_buffer(row, self.places)}" for row in self.rows]
        label = min(max(map(len, [*labels, "all memory"])), max(width // 3, 12))
        columns = max(min(width - label - 2, self.end - self.start), 1)
        scale = (self.end - self.start) / columns

        def column(launch: float) -> int:
            return min(max(int((launch - self.start) / scale), 0), columns - 1)

        top = max(self.memory.peak, 1)
        starts = [self.start + int(place * scale) for place in range(columns + 1)]
        levels = [self.level_at(a, max(b - 1, a)) for a, b in pairwise(starts)]
        curve = "".join(_LEVELS[-(-level * (len(_LEVELS) - 1) // top)] for level in levels)
        lines = [f"{'all memory':<{label}}  {curve}"]
        for row, name in zip(self.rows, labels, strict=True):
            cells = [" "] * columns
            for sign, span in ((_HELD, (row.since, row.until)), (_USED, span_of_uses(row))):
                if span is not None:
                    for place in range(column(span[0]), column(span[1]) + 1):
                        cells[place] = sign
            lines.append(f"{_cut(name, label):<{label}}  {''.join(cells)}")
        lines.append(" " * (label + 2 + column(self.memory.at.launch)) + "^")
        return lines

    # *** SVG

    def draw_svg(self) -> str:
        """Returns the picture as an SVG element without a style sheet: its colours are attributes of the shapes."""
        scale = _PLOT / max(self.end - self.start, 1)
        height = _CURVE + _ROW * (len(self.rows) + 2)

        def x(launch: float) -> float:
            return _LABEL + min(max((launch - self.start) * scale, 0), _PLOT)

        def y(size: int) -> float:
            return _CURVE - (_CURVE - 14) * size / max(self.memory.peak, 1)

        points, level = [f"{_LABEL},{_CURVE}", f"{_LABEL},{y(self.level_at(self.start, self.start)):.1f}"], 0
        for launch, size in self.memory.timeline:
            if self.start < launch < self.end:
                points += [f"{x(launch):.1f},{y(level):.1f}", f"{x(launch):.1f},{y(size):.1f}"]
            level = size
        level = self.level_at(self.end, self.end)
        points += [f"{_LABEL + _PLOT},{y(level):.1f}", f"{_LABEL + _PLOT},{_CURVE}"]
        shapes = [f'<polygon points="{" ".join(points)}" fill="#7aa6d6" fill-opacity="0.55"/>']
        shapes.append(_text(0, 24, f"peak {format_bytes(self.memory.peak)}"))
        for number, row in enumerate(self.rows):
            top = _CURVE + _ROW * (number + 0.5)
            name = f"{format_bytes(row.value.bytes)}  {name_buffer(row, self.places)}"
            shapes.append(_text(0, top + 12, _cut(name, 38), name))
            for height_of, fill, span in ((4, "#9aa4b0", (row.since, row.until)), (12, "#3f78b5", span_of_uses(row))):
                if span is not None:
                    wide = max(x(span[1] + 1) - x(span[0]), 1.5)
                    where = f'x="{x(span[0]):.1f}" y="{top + 8 - height_of / 2:.1f}" width="{wide:.1f}"'
                    shapes.append(f'<rect {where} height="{height_of}" fill="{fill}"/>')
        peak, bottom = x(self.memory.at.launch + 0.5), height - _ROW
        shapes.append(f'<path d="M{peak:.1f} 4V{bottom}" stroke="#c0392b" stroke-dasharray="3 3" fill="none"/>')
        shapes.append(_text(_LABEL, height - 4, f"launch {self.start:,}"))
        shapes.append(_text(_LABEL + _PLOT, height - 4, f"{self.end - 1:,}", anchor="end"))
        size = f'viewBox="0 0 {_LABEL + _PLOT + 10} {height}" width="{_LABEL + _PLOT + 10}" height="{height}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(shapes)}</svg>\n'


def span_of_uses(buffer: LiveBuffer) -> tuple[int, int] | None:
    """Returns the first and the last launch that use a buffer; None if no launch does."""
    if buffer.first is None or buffer.last is None:
        return None
    return buffer.first.launch, buffer.last.launch


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2] + ".."


def _text(x: float, y: float, text: str, title: str = "", anchor: str = "start") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    style = 'font-family="monospace" font-size="11" fill="#7b828c"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{told}{escape(text)}</text>'
