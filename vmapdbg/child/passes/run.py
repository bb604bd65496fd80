"""The child of `vmapdbg why --value`: runs the snippet, then follows its values through the passes of the scheduler.

Started by `shared/children.py` as `python -m vmapdbg.child.passes.run REQUEST`. Writes its result after each schedule.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import replace
from typing import Any

from vmapdbg.check.result import OutputPath, SchedulePath, ValueReport
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.failures.endless import Watcher
from vmapdbg.child.failures.snippet_end import hold
from vmapdbg.child.passes.follow import ScheduleFollower
from vmapdbg.child.passes.watch import FollowedCall, FollowingCollector
from vmapdbg.child.run_snippet import Mode, run_in
from vmapdbg.install.job import ValueRequest, load_request
from vmapdbg.model import capture as model
from vmapdbg.model.schedule_index import find_nodes_of
from vmapdbg.model.store import to_data, write_atomically
from vmapdbg.model.wording import first_line


def main() -> None:
    request = load_request(ValueRequest, sys.argv[1])
    hold(request.lifeline)
    mode: Any = Mode(request)
    progress = functools.partial(write_atomically, request.progress)
    watcher = Watcher(progress)
    watcher.start()
    mode.collector_kind = FollowingCollector
    error = run_in(mode, request)
    followed = [
        one
        for one in getattr(mode.collector, "followed", [])
        if one.schedule >= 0 and request.schedule in (None, one.schedule)
    ]
    schedules = mode.schedules
    nodes = [find_nodes(schedules[one.schedule].passed, one) for one in followed]
    capture = mode.build(error, lambda: None)
    watcher.stop()
    chosen = list(zip(followed, nodes, strict=True))
    if request.subject is not None:
        asked = find_nodes_of(capture, request.subject, request.schedule)
        chosen = [(one, known) for one, known in chosen if one.schedule in asked]
    paths: list[SchedulePath] = []
    write(request, capture, paths, stopped=bool(chosen))
    for number, (one, known) in enumerate(chosen, start=1):
        schedule = capture.schedules[one.schedule]
        try:
            follower = ScheduleFollower(one, known, mode.collector.folder, progress)
            path = follower.follow(schedule.line)
        except Exception as unexpected:  # the other schedules are followed all the same
            reason = f"its graphs cannot be read: {type(unexpected).__name__}: {first_line(unexpected)}"
            path = SchedulePath(one.schedule, schedule.line, reason=reason)
        paths.append(add_lines(path, schedule))
        write(request, capture, paths, stopped=number < len(chosen))


def find_nodes(passed: Any, one: FollowedCall) -> KnownNodes:
    """Returns the known nodes of a schedule; `passed` is the record of its pass, None if there is no record."""
    if passed is None:
        return KnownNodes(one.schedule)
    from vmapdbg.child.capture.view import PassView

    return KnownNodes(one.schedule, PassView(passed).ids, passed.held, dict(one.origin))


def add_lines(path: SchedulePath, schedule: model.Schedule) -> SchedulePath:
    """Returns the path of a schedule with the lines of its nodes."""
    lines: dict[int | None, str | None] = {node.id: node.line for node in schedule.nodes}
    outputs = tuple(_add_lines(output, lines) for output in path.outputs)
    return replace(path, outputs=outputs)


def _add_lines(output: OutputPath, lines: dict[int | None, str | None]) -> OutputPath:
    rewrite, read = output.rewrite, output.read
    if rewrite is not None:
        rewrite = replace(rewrite, line=lines.get(rewrite.node))
    if read is not None:
        read = replace(read, line=lines.get(read.node), writer_line=lines.get(read.writer_node))
    return replace(output, rewrite=rewrite, read=read, line=lines.get(output.node))


def write(request: ValueRequest, capture: model.Capture, paths: list[SchedulePath], stopped: bool) -> None:
    """Writes what is known so far. `stopped`: there is more to come, which Ctrl-C may prevent."""
    data = {"capture": to_data(capture), "report": to_data(ValueReport(tuple(paths), stopped))}
    write_atomically(request.output, json.dumps(data, separators=(",", ":"), allow_nan=False))


if __name__ == "__main__":
    main()
