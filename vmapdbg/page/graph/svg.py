"""What is added to the SVG that Graphviz writes: bold titles, coloured names, the fonts of each system."""

from __future__ import annotations

import html
import re

from vmapdbg.page.graph.dot import MARK_COLOURS, ROW_INDENT
from vmapdbg.page.graph.model import ADDED, REMOVED, Graph

_TEXT = re.compile(r"(<text\b[^>]*>)([^<]*)(</text>)")
_NODE_GROUP = re.compile(r'<g id="[^"]*" class="(?:node|cluster)">')
_FAMILY = re.compile(r'font-family="[^"]*"')
# what each system has first; all are about as wide as the Courier that Graphviz reckoned with
_FONTS = 'font-family="DejaVu Sans Mono,Menlo,Liberation Mono,Courier New,monospace"'
_START = re.compile(r'(<text\b[^>]* x=")[^"]*"')
_STYLE = """<style>
.edge:hover path { stroke-width: 3.5 }
.node:hover polygon, .node:hover path { stroke-width: 3 }
.edge a:hover, .node a:hover { cursor: help }
</style>
"""


def style_svg(svg: str, graph: Graph) -> str:
    """Returns Graphviz' SVG with titles bold, and vmap ranges and changes coloured."""
    parts = _NODE_GROUP.split(svg)
    heads = _NODE_GROUP.findall(svg)
    done = [_style_texts(parts[0], graph, False)]
    for head, part in zip(heads, parts[1:], strict=True):
        bold = not graph.is_table and not head.startswith('<g id="legend')
        if graph.is_table:
            # Graphviz counts the bytes of a text: where a row has wide letters, it would begin too far to the left
            part = _START.sub(rf'\g<1>{ROW_INDENT}"', part)
        done += [head, _style_texts(part, graph, bold)]
    start = _FAMILY.sub(_FONTS, "".join(done))
    before, first, after = start.partition("<g id=")
    if not first:
        return start
    return before + _STYLE + first + after


def _style_texts(part: str, graph: Graph, bold: bool) -> str:
    names = sorted(graph.range_colours, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w;&])(" + "|".join(re.escape(html.escape(name)) for name in names) + r")(?!\w)\*?")
    first = bold

    def style(match: re.Match[str]) -> str:
        nonlocal first
        open_tag, text, close = match.groups()
        # so that a name can begin after it
        text = text.replace("&#160;", "\u00a0")
        if first:
            open_tag = open_tag[:-1] + ' font-weight="bold">'
            first = False
        sign = {"- ": REMOVED, "+ ": ADDED}.get(text[:2])
        if sign is not None and "fill=" not in open_tag:
            open_tag = open_tag[:-1] + f' fill="{MARK_COLOURS[sign]}">'
        if names and "fill=" not in open_tag:
            text = pattern.sub(lambda m: _colour_name(m, graph), text)
        return open_tag + text + close

    return _TEXT.sub(style, part)


def _colour_name(match: re.Match[str], graph: Graph) -> str:
    colour = graph.range_colours[html.unescape(match[1])]
    return f'<tspan fill="{colour}" font-weight="bold">{match[0]}</tspan>'
