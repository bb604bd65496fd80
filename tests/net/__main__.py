"""`python -m tests.net record|compare`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.net.differences import group_equal
from tests.net.records import Worked, work_on
from tests.net.views import ROOT, STATES, list_programs
from tests.net.worker import set_environment


def main() -> int:
    asked = read_arguments()
    programs = list_programs(asked.only)
    set_environment()
    began, total = time.monotonic(), Worked()
    records = asked.action == "record"
    # spawned: a worker has the environment from its beginning, and nothing of this process
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool:
        options = (asked.states, asked.views, asked.data, records, asked.edited)
        work = {pool.submit(work_on, file, *options): file.stem for file in programs}
        for number, done in enumerate(as_completed(work), 1):
            worked = done.result()
            total.outputs += worked.outputs
            total.differences += worked.differences
            total.unknown += worked.unknown
            seconds = time.monotonic() - began
            differ = f", {len(worked.differences)} differ" if worked.differences else ""
            print(
                f"{seconds:4.0f} s  {number}/{len(work)}  {work[done]}: {worked.outputs} outputs{differ}",
                file=sys.stderr,
            )
    if records:
        print(f"{total.outputs} outputs recorded in {asked.data}")
        return 0
    for group in group_equal(sorted(total.differences, key=lambda one: one.key)):
        print(group.describe(sys.maxsize if asked.full else 12))
    unknown = f" ({total.unknown} more are not recorded)" if total.unknown else ""
    print(f"{total.outputs} outputs compared, {len(total.differences)} differ{unknown}")
    return 1 if total.differences or not total.outputs else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.net", description="Keeps, or compares, what commands print.")
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("--data", type=Path, default=ROOT / ".cache" / "net", help="where the outputs are")
    parser.add_argument(
        "--only", type=split, default=[""], metavar="A,B", help="programs with one of these in their names"
    )
    parser.add_argument("--states", type=split, default=list(STATES), help=f"of {','.join(STATES)}")
    parser.add_argument(
        "--views",
        type=split,
        default=[],
        help="names, or their beginnings: show.json,diff; saved: without a run for each",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--edited", action="store_true", help="the overlay was edited: its line numbers may differ")
    parser.add_argument("--full", action="store_true", help="print each difference from end to end")
    asked = parser.parse_args()
    unknown = set(asked.states) - set(STATES)
    if unknown:
        parser.error(f"unknown state {', '.join(unknown)}: choose from {', '.join(STATES)}")
    if not list_programs(asked.only):
        parser.error(f"no program has {' or '.join(asked.only)} in its name")
    asked.data = asked.data.absolute()
    return asked


def split(names: str) -> list[str]:
    return names.split(",")


if __name__ == "__main__":
    sys.exit(main())
