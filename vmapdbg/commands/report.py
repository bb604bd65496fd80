"""`vmapdbg report`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.work_folder import check_target
from vmapdbg.model.store import write_output

if TYPE_CHECKING:
    from vmapdbg.page.view import View

ENDINGS = (".html", ".htm")


@click.command(cls=options.SnippetCommand)
@options.snippet
@options.output("The HTML file to write.", required=True)
@options.times
@options.memory
@options.of_job
def report(snippet: str | None, output: Path, given: options.JobOptions) -> None:
    """Write what the scheduler did with SNIPPET as one HTML page: your source, the graph, the kernels, linked.

    SNIPPET is a Python file, a saved capture, or the last snippet. ARGUMENTS after -- are the snippet's own. The page
    needs no network and no server.

    \b
    Examples:
      vmapdbg report samples/lost_range.py -o report.html
      vmapdbg report train.py -o report.html --time --memory -- --steps 1
      vmapdbg report after.json -o report.html"""
    check_target(output, snippet, ENDINGS)
    capture = jobs.load_or_run(snippet, given)
    from vmapdbg.page.view import View

    write_report(View.of_one(capture), output, [snippet if jobs.is_saved(snippet) else ""])
    console.end_after(capture)


def write_report(view: "View", output: Path, saved: Sequence[str]) -> None:
    """Writes the page of one run, or of two, and says so. `saved` has the file that each run was read from, else ""."""
    from vmapdbg.page.html.page import render_report
    from vmapdbg.page.html.source import list_sources

    files = [list_sources(capture) for capture in (view.before, view.after)]
    made: list[str] = []
    for name in saved:
        when = datetime.fromtimestamp(Path(name).stat().st_mtime) if name else datetime.now()
        made.append(f"{'saved' if name else 'run'} {when:%Y-%m-%d %H:%M}")
    if saved[0] and not view.is_pair:
        made.insert(0, f"from {saved[0]}")  # of two runs, the name of each side is in the diff
    write_output(output, render_report(view, files[-1], ", ".join(dict.fromkeys(made)), files[0]))
    console.say(f"wrote {output}")
