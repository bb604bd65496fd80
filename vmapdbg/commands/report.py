"""`vmapdbg report`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.runs import capture_states
from vmapdbg.model.capture import Capture
from vmapdbg.model.store import check_output, write_output

if TYPE_CHECKING:
    from vmapdbg.page.html.source import SourceFile
    from vmapdbg.page.view import View

_ENDINGS = (".html", ".htm")


@click.command(cls=options.SnippetCommand)
@options.snippet
@options.arguments
@options.output("The HTML file to write.", required=True)
@options.times
@click.option("--patches-all", "switches", is_flag=True, help="Run it without each patch, too: the page has switches.")
@options.of_job
def report(snippet: str | None, output: Path, times: bool, switches: bool, given: options.JobOptions) -> None:
    """Write what the scheduler did with SNIPPET as one HTML page: your source, the graph, the kernels, linked.

    SNIPPET is a Python file, a saved capture, or the last snippet. ARGUMENTS after -- are the snippet's own. The page
    needs no network and no server.

    \b
    Examples:
      vmapdbg report samples/lost_range.py -o report.html
      vmapdbg report train.py -o report.html --time -- --steps 1
      vmapdbg report train.py -o report.html --patches-all
      vmapdbg report after.json -o report.html
    """
    # before the snippet runs
    check_page(output, jobs.name_of(snippet, given))
    if switches:
        from vmapdbg.page.html.page import render_states

        states = capture_states(snippet, given, times)
        files = _read_files([capture for _, capture in states], None)
        write_output(output, render_states(states, files, f"run {_format_time(None)}"))
        capture = states[0][1]
    else:
        capture = jobs.load_or_run(snippet, given, times)
        write_report(capture, output, snippet if jobs.is_saved(snippet) else None)
    console.say(f"wrote {output}")
    console.end_after(capture)


def check_page(output: Path, snippet: str | None) -> None:
    """Raises Failure if a page cannot be written to a path, or the path is the snippet."""
    check_output(output, snippet, _ENDINGS)


def write_diff_report(view: View, output: Path) -> None:
    """Writes the page of two runs. A capture from a file has the file's name in the diff."""
    from vmapdbg.page.html.page import render_report

    files: list[list[SourceFile]] = []
    made: list[str] = []
    for capture, side in ((view.before, view.diff.before), (view.after, view.diff.after)):
        saved_at = Path(side.name).stat().st_mtime if side.name else None
        files.append(_read_files([capture], saved_at))
        made.append(f"{'run' if saved_at is None else 'saved'} {_format_time(saved_at)}")
    write_output(output, render_report(view, files[1], ", ".join(dict.fromkeys(made)), files[0]))


def write_report(capture: Capture, output: Path, saved: str | None) -> None:
    """Writes the page of a capture; `saved` is the file that it was read from, None after a run."""
    from vmapdbg.page.html.page import render_report
    from vmapdbg.page.view import View

    saved_at = None if saved is None else Path(saved).stat().st_mtime
    made = f"run {_format_time(None)}"
    if saved is not None:
        made = f"from {saved}, saved {_format_time(saved_at)}"
    write_output(output, render_report(View.of_one(capture), _read_files([capture], saved_at), made))


def _read_files(captures: Sequence[Capture], saved_at: float | None) -> list[SourceFile]:
    from vmapdbg.page.html.source import list_lines, read_sources

    lines = dict.fromkeys(line for capture in captures for line in list_lines(capture))
    return read_sources(lines, captures[0].snippet, saved_at)


def _format_time(seconds: float | None) -> str:
    when = datetime.now() if seconds is None else datetime.fromtimestamp(seconds)
    return when.strftime("%Y-%m-%d %H:%M")
