"""`vmapdbg diff DIR DIR`: two runs that `vmapdbg run --save` wrote."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vmapdbg.commands.shared.console import make_console, print_json, say
from vmapdbg.model.failure import EXIT_USAGE, Failure
from vmapdbg.model.wording import join_first

if TYPE_CHECKING:
    from vmapdbg.diff import CaptureDiff
    from vmapdbg.suite.result import SuiteDiff
    from vmapdbg.suite.saved import LoadedRun

SuiteFormat = Literal["text", "github"]


@dataclass(frozen=True)
class SuiteOptions:
    """How two saved runs are compared and shown, as given on the command line."""

    test: str | None
    form: SuiteFormat | None
    as_json: bool
    show_all: bool
    unified: bool
    exit_code: bool


def find_folders(inputs: Sequence[str]) -> tuple[Path, Path] | None:
    """Returns the folders of two saved runs, None if the inputs of diff name no folder. Raises Failure if only one of
    them is a folder."""
    paths = [Path(item) for item in inputs]
    if not any(path.is_dir() for path in paths):
        return None
    missing = next((path for path in paths if not path.exists()), None)
    if missing is not None:
        raise Failure(f"there is no folder {missing}")
    if len(paths) != 2 or not all(path.is_dir() for path in paths):
        raise Failure("a saved run is compared with another one: vmapdbg diff BEFORE_DIR AFTER_DIR")
    return paths[0], paths[1]


def diff_folders(before: Path, after: Path, options: SuiteOptions) -> None:
    """Prints how two saved runs, or one test of them, differ. With --exit-code a difference ends the tool with 1.
    Raises Failure."""
    if options.form == "github" and options.as_json:
        raise Failure("--json and --format github are two formats: give one of them")
    if options.form == "github" and options.test is not None:
        raise Failure("--format github is for whole runs, not for one --test")
    from vmapdbg.suite.compare import compare_runs, diff_test
    from vmapdbg.suite.saved import load_run

    runs = load_run(before), load_run(after)
    if options.test is None:
        found = compare_runs(*runs)
        print_runs(found, options)
        end_if_damaged(found, options)
    else:
        found = diff_test(*runs, find_test(runs, options.test))
        print_test(found, options)
    if options.exit_code and not found.is_empty:
        sys.exit(1)


def print_runs(found: SuiteDiff, options: SuiteOptions) -> None:
    if options.as_json:
        print_json(found)
    elif options.form == "github":
        from vmapdbg.page.suite_words import dump_suite_github

        sys.stdout.write(dump_suite_github(found))
    else:
        from vmapdbg.page.text.suite import print_suite

        print_suite(found, make_console(), show_all=options.show_all)


def print_test(found: CaptureDiff, options: SuiteOptions) -> None:
    """Prints the diff of one test like a diff of two captures."""
    if options.as_json:
        print_json(found)
    else:
        from vmapdbg.page.text.diff import print_diff

        print_diff(found, make_console(), show_all=options.show_all, unified=options.unified)


def end_if_damaged(found: SuiteDiff, options: SuiteOptions) -> None:
    """Lists damaged files on stderr. With --exit-code they end the tool with 2: the comparison is not complete."""
    for line in found.damaged:
        say(line)
    if options.exit_code and found.damaged:
        sys.exit(EXIT_USAGE)


def find_test(runs: tuple[LoadedRun, LoadedRun], asked: str) -> str:
    """Returns the id of a test: `asked` itself, or the only id that contains it. Raises Failure."""
    every = list(dict.fromkeys(test for run in runs for test in run.parts))
    if asked in every:
        return asked
    # `test_add` means `test_add`, not `test_add_3`
    found = [test for test in every if test.endswith(f"::{asked}")] or [test for test in every if asked in test]
    if not found:
        raise Failure(f"no test of the runs has {asked!r} in its id")
    if len(found) > 1:
        raise Failure(f"{asked!r} is in the ids of {len(found)} tests: {join_first(found, 3)}")
    return found[0]
