"""Adds the user's lines to what was found, from the nodes of the Capture."""

from __future__ import annotations

from dataclasses import replace

from vmapdbg.check.value_path import OutputPath, SchedulePath
from vmapdbg.model.capture import Schedule


def add_lines(path: SchedulePath, schedule: Schedule) -> SchedulePath:
    """Returns the path of a schedule with the lines of its nodes."""
    lines = {node.id: node.line for node in schedule.nodes}
    return replace(path, outputs=tuple(_add_lines(output, lines) for output in path.outputs))


def _add_lines(output: OutputPath, lines: dict[int, str | None]) -> OutputPath:
    rewrite, read = output.rewrite, output.read
    if rewrite is not None and rewrite.node is not None:
        rewrite = replace(rewrite, line=lines.get(rewrite.node))
    if read is not None:
        read = replace(read, line=_find(lines, read.node), writer_line=_find(lines, read.writer_node))
    return replace(output, rewrite=rewrite, read=read, line=_find(lines, output.node))


def _find(lines: dict[int, str | None], node: int | None) -> str | None:
    return None if node is None else lines.get(node)
