"""`vmapdbg bisect` on the command line: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vmapdbg.bisect.search import Reduced
from vmapdbg.commands.jobs import bisect_job, find_job, reduce_job
from vmapdbg.commands.options import EXIT_USAGE, Failure, make_console, patches_option, timeout_option
from vmapdbg.store import StoreError, write_atomically
from vmapdbg.vocabulary import OutcomeKind


@click.command()
@click.argument("snippet", required=False)
@click.option(
    "--on",
    "kind",
    type=click.Choice(["values", "kernels", "findings", "crash"]),
    default="values",
    show_default=True,
    help="What tells outcomes apart.",
)
@click.option(
    "--runs", type=click.IntRange(min=2), default=64, show_default=True, help="Run the snippet at most about so often."
)
@click.option("--reduce", "with_snippet", is_flag=True, help="Write a small snippet that still shows the difference.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The file for it; default: stdout."
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=60, show_default=True, help="Reduce for at most so long."
)
@patches_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print the search as one JSON document.")
def bisect(
    snippet: str | None,
    kind: OutcomeKind,
    runs: int,
    with_snippet: bool,
    output: Path | None,
    seconds: float,
    patches: frozenset[str] | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Find the smallest sets of patches that change what comes of SNIPPET.

    The snippet is run with sets of the patches, several at the same time: all of them by size, the smallest first, and
    by halves where those are more than --runs. It is not assumed that more patches are better. Without SNIPPET: the
    snippet of the last show.

    \b
    Exit codes: 0 no set changes the outcome, 1 one does, 2 usage.

    \b
    Examples:
      vmapdbg bisect samples/lost_range.py
      vmapdbg bisect samples/unclosed_range.py --on crash
      vmapdbg bisect train.py --reduce -o small.py
    """
    if output is not None and not with_snippet:
        raise Failure("-o is the file for --reduce", EXIT_USAGE)
    job = find_job(snippet, None, patches, timeout)
    most = min(runs, 2 ** len(job.patches or ()))
    click.echo(f"vmapdbg: running {job.snippet} up to {most} times, with all that it does", err=True)
    search, outcomes = bisect_job(job, kind, runs)
    reduced = reduce_job(job, kind, search, seconds) if with_snippet and not search.is_uniform else None
    if as_json:
        from vmapdbg.render.documents import dump_document, make_bisect_document

        sys.stdout.write(dump_document(make_bisect_document(job.snippet, kind, search, outcomes, reduced)))
    else:
        from vmapdbg.render.text.bisect import print_bisect

        print_bisect(job.snippet, kind, search, outcomes, make_console())
    if reduced is not None:
        write_reduced(reduced, output, as_json)
    sys.exit(0 if search.is_uniform else 1)


def write_reduced(reduced: Reduced, output: Path | None, as_json: bool) -> None:
    if reduced.text is None:
        click.echo(f"vmapdbg: nothing was reduced: {reduced.reason}", err=True)
        return
    if output is not None:
        try:
            write_atomically(output, reduced.text)
        except StoreError as error:
            raise Failure(str(error), EXIT_USAGE) from None
    elif not as_json:
        click.echo("\n" + reduced.text, nl=False)
    counts = f"{reduced.before} nodes to {reduced.after}, {reduced.tried} graphs tried"
    click.echo(f"vmapdbg: {'reduced' if output is None else f'wrote {output}'}: {counts}", err=True)
