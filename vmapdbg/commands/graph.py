"""`vmapdbg graph`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from vmapdbg.commands.baseline import find_pair
from vmapdbg.commands.completion import offer_baselines, offer_files
from vmapdbg.commands.jobs import find_capture
from vmapdbg.commands.options import JobOptions, SnippetCommand, end_after, job_options
from vmapdbg.model.vocabulary import StageName


@click.command(cls=SnippetCommand)
@click.argument("snippet", required=False, shell_complete=offer_files)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="svg, png, pdf, dot or json.")
@click.option(
    "--stage",
    type=click.Choice(get_args(StageName)),
    default="tensor",
    show_default=True,
    help="What is drawn.",
)
@click.option("--schedule", type=click.IntRange(min=0), help="Draw this schedule; default: the last with kernels.")
@click.option("--around", type=click.IntRange(min=0), help="Draw only what is near this node.")
@click.option("--depth", type=click.IntRange(min=0), help="How far from --around, in edges.")
@click.option(
    "--fold", type=click.IntRange(0, 4), help="How much to fold: 0 nothing, 4 most; default: what the size asks for."
)
@click.option("--diff", "with_baseline", is_flag=True, help="Draw the baseline over it: removed red, added green.")
@click.option("--baseline", shell_complete=offer_baselines, help="The before of --diff, as for diff.  [default: none]")
@job_options
def graph(
    snippet: str | None,
    output: Path,
    stage: str,
    schedule: int | None,
    around: int | None,
    depth: int | None,
    fold: int | None,
    with_baseline: bool,
    baseline: str | None,
    options: JobOptions,
) -> None:
    """Draw the schedule of SNIPPET (a Python file, a saved capture, or the last snippet) to a file.

    \b
    Examples:
      vmapdbg graph -o out.svg
      vmapdbg graph samples/lost_range.py -o kernels.svg --stage kernels
      vmapdbg graph -o change.svg --diff --around 48 --depth 3
    """
    from vmapdbg.page.graph.write import check_path, write_graph

    # before the snippet runs
    check_path(output)
    other = None
    if with_baseline:
        pair = find_pair(snippet, baseline, options)
        other, capture = pair.before, pair.after
    else:
        capture = find_capture(snippet, options)
    notes = write_graph(
        capture, output, stage=stage, schedule=schedule, around=around, depth=depth, other=other, fold=fold
    )
    for note in (*notes, f"wrote {output}"):
        click.echo(f"vmapdbg: {note}", err=True)
    end_after(capture)
