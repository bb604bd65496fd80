"""`vmapdbg issue`."""

import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.work_folder import check_target
from vmapdbg.install.job import Job
from vmapdbg.model.capture import DIED, Capture
from vmapdbg.model.store import write_output
from vmapdbg.model.wording import format_known

if TYPE_CHECKING:
    from vmapdbg.check.result import CheckReport

Fault = tuple[str, str | None]
"""What is wrong, and the line of the user."""
_NAME = "wrong.py"
_WIDTH = 100


@click.command(cls=options.SnippetCommand)
@options.snippet
@options.output("The markdown file; default: stdout.")
@click.option("--seconds", type=options.SECONDS, default=60.0, show_default=True, help="Seconds for the reduction.")
@click.option("--commits", "span", metavar="GOOD..BAD", help="Find the first bad commit; --tinygrad names the clone.")
@options.of_job
@console.display_options
def issue(
    snippet: str | None, output: Path | None, seconds: float, span: str | None, given: options.JobOptions
) -> None:
    """Write a page about a fault of tinygrad that SNIPPET shows, ready to be filed.

    SNIPPET becomes as small as possible (see `bisect --reduce`: changed versions of it run). The page has the small
    program, the versions, what is wrong and what numpy computes, the first pass and rule that make it wrong, and with
    --commits the first bad commit. Read the program before you file it. The patches are off if --patches is not given.

    Without SNIPPET: the snippet of the last show.

    \b
    Exit codes: 0 the page was written, 1 SNIPPET shows no fault of tinygrad, 2 usage.

    \b
    Examples:
      vmapdbg issue wrong.py -o issue.md --tinygrad 0.14.0
      vmapdbg issue wrong.py --tinygrad ../tinygrad --commits v0.13.0..master"""
    check_target(output, snippet)
    job = jobs.make_job(snippet, given)
    if given.patches is None and job.patches is not None:
        job = replace(job, patches=frozenset())
    page, reason = _make_page(job, seconds, span)
    if reason is not None:
        console.say(f"no page was written: {reason}")
        sys.exit(1)
    if output is None:
        click.echo(page, nl=False)
    else:
        write_output(output, page)
        console.say(f"wrote {output}")


def _make_page(job: Job, seconds: float, span: str | None) -> tuple[str, str | None]:
    """Returns the page about a job's fault, and why there is none. Raises Failure, KeyboardInterrupt."""
    from vmapdbg.commands.bisect_reduce import reduce_job
    from vmapdbg.commands.bisect_searches import search_history
    from vmapdbg.page.text.check import print_check

    if _find_fault(job)[2] is None:
        return "", "neither does tinygrad fail, nor is a value wrong"
    reduced, interrupted = reduce_job([job], "values", None, seconds, Path(_NAME))
    if interrupted is not None:
        raise interrupted
    if reduced.text is None:
        return "", reduced.reason
    program = "".join(line for line in reduced.text.splitlines(keepends=True) if not line.startswith("# "))
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        file = Path(folder, _NAME)
        file.write_text(program, encoding="utf-8")
        small = replace(job, snippet=str(file), typed="")
        capture, report, fault = _find_fault(small)
        if fault is None:
            return "", "the small program does not show the fault when it is run once more"
        about = console.print_to_text(lambda: print_check(capture, report, console.make_console()), _WIDTH)
        if capture.error is not None and capture.error.type == DIED:
            about += f"{capture.error.message}\n"
        where = _find_where(small) if any(check.wrong for check in report.schedules) else ""
        suspects = () if span is None else search_history(small, span, "values").suspects
        about, where = (text.replace(f"{folder}/", "") for text in (about, where))
    versions, revision = capture.versions, format_known(" ({})", capture.versions.commit)
    made = f"tinygrad {versions.tinygrad}{revision}, Python {versions.python}, {platform.platform()}, {capture.target}"
    command = " ".join(["vmapdbg check", _NAME, *jobs.spell_job_options(small)])
    page = [f"# {_find_title(fault, program)}", made, f"```python\n{program}```"]
    page += [f"`{command}` compares each value with numpy:", f"```\n{about}```"]
    if where:
        page += ["The first pass and the first rewrite that make it wrong (`vmapdbg why --value`):", f"```\n{where}```"]
    if span is not None:
        page.append(f"The first bad commit: {', '.join(suspects) or f'no commit of {span} changes its values'}")
    return "\n\n".join(page) + "\n", None


def _find_title(fault: Fault, program: str) -> str:
    what, line = fault
    number = (line or "").rpartition(":")[2]
    shown = dict(enumerate(program.splitlines(), start=1)).get(int(number) if number.isdecimal() else 0, _NAME)
    return f"{what}: `{shown.strip()}`" if line is not None else what


def _find_fault(job: Job) -> "tuple[Capture, CheckReport, Fault | None]":
    """Returns what `check` finds of a job, and the first fault of tinygrad. Raises what ended the comparison early."""
    from vmapdbg.check.findings import NUMBERS
    from vmapdbg.commands.check import check_job
    from vmapdbg.page.check_sentences import make_findings
    from vmapdbg.page.text.check import TITLES

    capture, report, ended = check_job(job)
    if ended is not None:
        raise ended
    findings = [one for one in make_findings(capture, report) if one.code not in NUMBERS.values()]
    if (error := capture.error) is not None and error.type == DIED:
        # without the name of the file: `Killed by SIGSEGV while launch 0 of its last schedule ran, kernel E_4`
        how = error.message.partition(" was ")[2] or error.message
        return capture, report, (how[0].upper() + how[1:], error.line)
    if error is not None and findings:
        return capture, report, (error.type, findings[0].line)
    faults = [(TITLES.get(one.code, "wrong value").capitalize(), one.line) for one in findings]
    return capture, report, next(iter(faults), None)


def _find_where(job: Job) -> str:
    """Returns the values of a job after each pass, as `why --value` prints them; nothing if each pass is right."""
    from vmapdbg.commands.why import follow_job
    from vmapdbg.page.text.why import print_value_paths

    capture, report = follow_job(job, None, None)
    account = report.settle(capture.account, is_part=False)
    if not report.is_wrong:
        return ""
    return console.print_to_text(lambda: print_value_paths(capture, report, account, console.make_console()), _WIDTH)
