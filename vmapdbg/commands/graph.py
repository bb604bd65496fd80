"""`vmapdbg graph`."""

from pathlib import Path
from typing import get_args

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.runs import make_sides
from vmapdbg.commands.shared.work_folder import check_target
from vmapdbg.model.vocabulary import StageName


@click.command(cls=options.SnippetCommand)
@options.snippet
@options.output("svg, png, pdf, dot or json.", required=True)
@click.option(
    "--stage", type=click.Choice(get_args(StageName)), default="tensor", show_default=True, help="What is drawn."
)
@click.option("--schedule", type=click.IntRange(min=0), help="Draw this schedule; default: the one with most work.")
@click.option("--around", type=options.NODE, help="Draw only what is near this node, 36 or 55/36.")
@click.option("--depth", type=click.IntRange(min=0), help="How far from --around, in edges.")
@click.option(
    "--fold", type=click.IntRange(0, 4), help="How much to fold: 0 nothing, 4 most; default: what the size asks for."
)
@options.flag("--diff", "with_baseline", help="Draw the baseline over it: removed red, added green.")
@options.baseline(help="The before of --diff, as for diff.  [default: none]")
@options.of_job
def graph(
    snippet: str | None,
    output: Path,
    stage: StageName,
    schedule: int | None,
    around: tuple[int | None, int] | None,
    depth: int | None,
    fold: int | None,
    with_baseline: bool,
    baseline: str | None,
    given: options.JobOptions,
) -> None:
    """Draw the schedule of SNIPPET (a Python file, a saved capture, or the last snippet) to a file.

    \b
    Examples:
      vmapdbg graph -o out.svg
      vmapdbg graph samples/lost_range.py -o kernels.svg --stage kernels
      vmapdbg graph -o change.svg --diff --around 48 --depth 3"""
    from vmapdbg.page.graph.write import ENDINGS, find_format, write_graph

    check_target(output, snippet, ENDINGS)
    find_format(output)
    other = None
    if with_baseline:
        pair = make_sides(snippet, baseline, given)
        other, capture = pair.before, pair.after
    else:
        capture = jobs.load_or_run(snippet, given)
    of_node, node = around or (None, None)
    number = schedule if of_node is None else of_node
    notes = write_graph(capture, output, stage=stage, schedule=number, around=node, depth=depth, other=other, fold=fold)
    for note in (*notes, f"wrote {output}"):
        console.say(note)
    console.end_after(capture)
