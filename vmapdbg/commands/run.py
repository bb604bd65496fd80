"""`vmapdbg run`: patches or observes a program's processes, in which `child/run_program.py` lints, saves and checks."""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click

from vmapdbg import __version__
from vmapdbg.check.findings import CheckedSchedule, ProgramCheck, sum_up
from vmapdbg.commands.shared import console, jobs, options
from vmapdbg.commands.shared.children import started_child
from vmapdbg.commands.shared.settings import find_settings
from vmapdbg.install.job import COUNTS, CheckRequest, Job, LintedSchedule
from vmapdbg.install.overlay import TINYGRAD_VERSION, child_environment
from vmapdbg.install.patches import Patches, format_patches
from vmapdbg.install.trees import find_tree
from vmapdbg.model.account import UNKNOWN, Account, Left, add_accounts, settle
from vmapdbg.model.capture import SCHEMA, Versions
from vmapdbg.model.failure import EXIT_CHILD, EXIT_USAGE, Failure
from vmapdbg.model.store import build_data, check_output, dump_compact, dump_document, read_lines, write_output
from vmapdbg.model.wording import format_plural
from vmapdbg.suite.saved import FAILED, RUN_FOLDER, RUN_SCHEMA, SavedRun, end_run, load_run, prepare_folder

_NO_FILES = ("-m", "-c", "-")  # what Python accepts in place of a script's name


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@options.patches("Which patches are on: all, none, or a list.  [default: all, where they fit]")
@options.tinygrad
@options.flag("--lint", "with_lint", help="Lint each kernel; findings at the end, on stderr, and exit 1.")
@options.target("What --lint and --save render kernels for.")
@options.output("Write them as JSON, too.", "--lint-output")
@options.output("Save what each test schedules into this folder.", "--save")
@options.flag("--check", "with_check", help="Compare each value that is realized with the numpy reference.")
@options.json(help="Print what --check found as one JSON document.")
@options.strict
@click.argument("program", nargs=-1, required=True, type=options.FILE)
def run(
    patches: Patches | None,
    tree: str | None,
    python: str | None,
    with_lint: bool,
    target: str | None,
    lint_output: Path | None,
    save: Path | None,
    with_check: bool,
    as_json: bool,
    strict: bool,
    program: tuple[str, ...],
) -> None:
    """Run a program on patched tinygrad, or on another one: SCRIPT [ARGS], -m MODULE [ARGS], -c CODE [ARGS], or - for
    stdin.

    Python processes that it starts (pytest-xdist workers, spawn, BEAM) get the same tinygrad and the same patches.

    \b
    Examples:
      vmapdbg run --patches all,-close-ranges -m pytest -n 2 test_schedule.py
      vmapdbg run --lint train.py --steps 1
      vmapdbg run --save before -m pytest -n 2 test_ops.py   # then vmapdbg diff before after
      vmapdbg run --check -m pytest -n 2 test_ops.py"""
    linting = with_lint or lint_output is not None
    kinds = {"--lint": linting, "--save": save is not None, "--check": with_check}
    if sum(kinds.values()) > 1:
        given = " and ".join(name for name, is_given in kinds.items() if is_given)
        raise Failure(f"{given} are for separate runs: give one of them")
    if as_json and not with_check:
        raise Failure("--json prints what --check found: give both, or --lint-output FILE")
    if strict and not (with_check or linting):
        raise Failure("--strict is for --check and --lint")
    if program in (("-m",), ("-c",)):
        raise Failure({"-m": "-m needs the name of a module", "-c": "-c needs code"}[program[0]])
    if program[0] not in _NO_FILES:
        jobs.check_snippet(program[0])
    # for a program that is not a file, the settings of the working directory count
    plain = jobs.apply_settings(Job(program[0], program[1:], tree=tree or "", python=python or ""))
    job = jobs.apply_options(plain, options.JobOptions(target, patches))
    job = jobs.choose_tinygrad(job, patches)
    sys.stdout.flush()  # execvpe drops what is still in the buffer
    if save is not None:
        sys.exit(run_and_save(job, save))
    if with_check:
        sys.exit(run_and_check(job, as_json, strict))
    if linting:
        sys.exit(run_and_lint(job, lint_output, strict))
    command = command_of(job)
    os.execvpe(command[0], command, environment_of(job))


def command_of(job: Job) -> list[str]:
    return [job.python or sys.executable, job.snippet, *job.arguments]


def environment_of(job: Job, observes: bool = False) -> dict[str, str]:
    """Returns the environment for the job's patches or tree; `observes`: processes without patches are observed."""
    patches = None if job.patches is None else format_patches(job.patches)
    folder = str(find_tree(job.tree).folder) if job.tree else ""
    return child_environment(patches, dict(os.environ), folder, observes=observes)


def collect(job: Job, kind: str, folder: Path, stdout: IO[str] | None = None, **needed: Any) -> int:
    """Runs a program whose processes lint, save or check (`kind`) what they schedule, and write to a folder. Returns
    its exit code: 128 + the signal that killed it. `stdout` None is the tool's; `needed` is what the kind needs."""
    # set if a test of another project runs this tool
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    asked = {"kind": kind, "folder": str(folder), **needed}
    environment = {**environment_of(job, observes=True), "VMAPDBG_COLLECT": dump_compact(asked)}
    process = subprocess.Popen(command_of(job), env=environment, stdout=stdout)
    # Ctrl-C goes to the program as well: the program decides what to do
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        process.kill()
    return 128 - status if status < 0 else status


def run_and_lint(job: Job, output: Path | None, strict: bool) -> int:
    """Runs a program, prints what lint found to stderr and writes it to `output`. Returns the exit code: the program's
    own, or 1 for findings; with `strict` also for kernels without a program."""
    from vmapdbg.lint import drop_repeated
    from vmapdbg.lint.ignores import split_ignored
    from vmapdbg.page.documents import RunDocument
    from vmapdbg.page.text.lint import print_run

    if output is not None:
        check_output(output, job.snippet)
    with tempfile.TemporaryDirectory(prefix="vmapdbg-lint-") as folder:
        status = collect(job, "lint", Path(folder), target=job.target)
        text = "".join(file.read_text(encoding="utf-8") for file in sorted(Path(folder).glob("*.jsonl")))
        schedules = [build_data(LintedSchedule, data) for data in read_lines(text)]
        counted = read_counts(Path(folder))
    codes = find_settings(job.snippet).choose_codes()
    # equal findings of two processes count once
    found = drop_repeated(finding for schedule in schedules for finding in schedule.findings)
    stay, ignored = split_ignored(finding for finding in found if finding.code in codes)
    kernels, undecided = sum(one.kernels for one in schedules), sum(one.undecided for one in schedules)
    failed = Counter(one.failed for one in schedules if one.failed is not None)
    linted = RunDocument(
        schema=SCHEMA,
        kind="run",
        target=job.target,
        status=status,
        schedules=len(schedules),
        kernels=kernels,
        undecided=undecided,
        findings=stay,
        ignored=len(ignored),
        failed=dict(failed),
        account=settle_lint(counted, kernels, undecided, failed),
    )
    jobs.report_mistakes(stay)
    print_run(linted, console.make_console(stderr=True))
    if output is not None:
        write_output(output, dump_document(linted))
    is_open = not linted.schedules or linted.account is None or not linted.account.is_balanced
    return status or int(bool(stay) or (strict and is_open))


def settle_lint(counted: Account, kernels: int, undecided: int, failed: Mapping[str, int]) -> Account:
    """Returns how many of the launches and kernels of a program were looked at."""
    left = [Left("schedules", count, reason) for reason, count in failed.items()]
    left.append(Left("kernels", undecided, "an address is unknown"))
    part = counted.part("launches", "other launches", "processes")
    seen, compared = {"kernels": kernels, **part.seen}, {"kernels": kernels - undecided, **part.compared}
    return settle(seen, compared, (*left, *part.left), "no schedule that was looked at has them")


def read_counts(folder: Path) -> Account:
    """Returns what the processes of a program counted."""
    accounts: list[Account] = []
    for file in sorted((folder / COUNTS).glob("*")):
        text = file.read_bytes().partition(b"\0")[0]
        try:
            # without a text the process counted nothing
            accounts.append(build_data(Account, json.loads(text or "{}")))
        except ValueError:
            accounts.append(Account(left=(Left("processes", 1, "its counts cannot be read"),)))
    return add_accounts(accounts)


def run_and_check(job: Job, as_json: bool, strict: bool) -> int:
    """Runs a program and prints which of its values are wrong: on stderr, or with `as_json` as a document on stdout.
    Returns 1 if a value is wrong or tinygrad was stopped, 4 if the comparing process died, else the program's exit
    code; with `strict` 1 instead of 0 if anything was not compared."""
    from vmapdbg.page.check_sentences import add_messages
    from vmapdbg.page.text.check import print_run_check

    request = CheckRequest(job=Job(job.snippet))
    with started_child(request, None, sys.stderr.fileno(), one_thread=True) as child:
        root = Path(child.request.folder)
        (root / "ready").mkdir(exist_ok=True)
        status = collect(job, "check", root, sys.stderr if as_json else None)
        child.request.over.touch()
        with console.show_progress("comparing what the program realized") as progress:
            compared, stopped = child.answer("the comparing process", None, progress)
        died = child.process.returncode != 0 and stopped is None
        found = replace(read_found(root, compared, died, status), program=(job.snippet, *job.arguments))
    document = add_messages(found)
    console.print_result(document, as_json, print_run_check, stderr=True)
    if died:
        return EXIT_CHILD
    if document.findings or document.endless:
        return 1
    is_open = not document.values or document.account is None or not document.account.is_balanced
    return status or int(strict and is_open)


def read_found(root: Path, compared: str, died: bool, status: int = 0) -> ProgramCheck:
    """Returns what was found. What is left was not compared: the comparing process `died`, or the run was stopped."""
    left, rest = len(os.listdir(root / "ready")), "the program did not end well" if status else UNKNOWN
    if left:
        rest = f"it was not compared: {'the comparing process died' if died else 'the run was stopped'}"
    checks = (build_data(CheckedSchedule, data) for data in read_lines(compared))
    found = sum_up(checks, read_counts(root), rest)
    return replace(found, status=status, unchecked={**found.unchecked, **({rest: left} if left else {})})


def run_and_save(job: Job, folder: Path) -> int:
    """Runs a program whose processes save what they schedule. Returns its exit code, or 2 if it ended well and not all
    could be saved. Raises Failure, before it runs, if the folder cannot be used."""
    prepare_folder(folder)
    folder = folder.absolute()
    name, program = f"{RUN_FOLDER}{uuid.uuid4().hex[:12]}", (job.snippet, *job.arguments)
    run = SavedRun(RUN_SCHEMA, "saved-run", name, find_versions(job), job.target, job.patch_states, program)
    status = collect(job, "save", folder, run=run)
    if not end_run(folder, replace(run, status=status)):
        console.say("the program made no schedule: nothing was saved")
        return status
    files = folder / run.folder
    if (files / FAILED).exists():
        console.say(f"{folder} does not have everything: a process could not write to it")
        return status or EXIT_USAGE
    tests, schedules = len(load_run(folder).tests), len(list((files / "schedules").iterdir()))
    counts = f"{format_plural(tests, 'test')}, {format_plural(schedules, 'different schedule')}"
    console.say(f"saved {counts} in {folder}")
    return status


def find_versions(job: Job) -> Versions:
    """Returns the versions of a job, as far as they are known before it runs."""
    python = platform.python_version()
    if job.patches is not None:
        return Versions(__version__, TINYGRAD_VERSION, python)
    tree = find_tree(job.tree) if job.tree else jobs.find_installed(job.folder)
    return Versions(__version__, tree.version or "unknown", python, tree=job.tree, commit=tree.commit)
