"""`vmapdbg tune`."""

import sys

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.model.failure import Failure

_BUDGET = "Try edits for so long. Measuring the best of them comes after that."


@click.command(cls=options.SnippetCommand)
@options.snippet
@click.option("--by", type=click.Choice(["time", "memory"]), default="time", show_default=True, help="What to reduce.")
@click.option("--budget", type=options.SECONDS, default=60.0, show_default=True, help=_BUDGET)
@options.flag("--write", help="Make the edits in the files, unless these changed meanwhile.")
@options.json(help="Print the edits and all that was tried as one JSON document.")
@options.of_job
@console.display_options
def tune(snippet: str | None, by: str, budget: float, write: bool, as_json: bool, given: options.JobOptions) -> None:
    """Find edits of SNIPPET that make it faster, or smaller in memory: tried, measured, and with the same values.

    Edits store a value that kernels compute again and again (.contiguous() at an expression), or do not store one.
    Switches of tinygrad are tried too; with the patches, single patches. SNIPPET runs once for each try. The most
    promising edit comes first, and each edit is tried together with the edits that helped before. Then the unchanged
    program and the best edits run in turns, 5 times each. The edits are proposed if they save 3 % and more than the
    noise, and if their values agree with the numpy reference and the unchanged program. Only --write changes files.

    The time is the time of all kernels and of launching them, without Python, scheduling and compiling.

    Without SNIPPET: the snippet of the last show.

    \b
    Exit codes: 0 no edit helps, 1 one does, 2 usage, 3 the snippet failed, 4 it hung or died.

    \b
    Examples:
      vmapdbg tune samples/rotary.py --tinygrad 0.14.0
      vmapdbg tune train.py --budget 300 --write -- --steps 5
      vmapdbg tune train.py --by memory"""
    job = jobs.make_job(snippet, given)
    if write and job.typed:
        raise Failure("--write changes a file, and this code was typed")
    from vmapdbg.commands.tune_runs import tune_job
    from vmapdbg.page.text.tune import print_tune

    document, tuner = tune_job(job, by, budget)
    console.print_result(document, as_json, print_tune)
    if write:
        tuner.write(tuple(edit for one in document.proposals if one.diff for edit in one.edits))
    sys.exit(int(bool(document.proposals)))
