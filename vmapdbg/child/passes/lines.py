"""Adds the user's lines to what was found, from the nodes of the Capture."""

from __future__ import annotations

from dataclasses import replace

from vmapdbg.check.value_path import NodePath, OutputPath, SchedulePath
from vmapdbg.model.capture import Schedule


def add_lines(path: SchedulePath, schedule: Schedule) -> SchedulePath:
    """Returns the path of a schedule with the lines of its nodes."""
    lines: dict[int | None, str | None] = {node.id: node.line for node in schedule.nodes}
    outputs = tuple(_add_lines(output, lines) for output in path.outputs)
    return replace(path, outputs=outputs, nodes=tuple(_add_node_lines(node, lines) for node in path.nodes))


def _add_node_lines(path: NodePath, lines: dict[int | None, str | None]) -> NodePath:
    rewrite = path.rewrite
    if rewrite is not None:
        rewrite = replace(rewrite, line=lines.get(rewrite.node))
    return replace(path, rewrite=rewrite, line=lines.get(path.node))


def _add_lines(output: OutputPath, lines: dict[int | None, str | None]) -> OutputPath:
    rewrite, read = output.rewrite, output.read
    if rewrite is not None:
        rewrite = replace(rewrite, line=lines.get(rewrite.node))
    if read is not None:
        read = replace(read, line=lines.get(read.node), writer_line=lines.get(read.writer_node))
    return replace(output, rewrite=rewrite, read=read, line=lines.get(output.node))
