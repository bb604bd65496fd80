"""`python -m tests.net record|compare`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.net.differences import describe_group, group_equal
from tests.net.views import ROOT, STATES, list_programs
from tests.net.worker import Worked, set_environment, work_on


def main() -> int:
    asked = read_arguments()
    set_environment()
    total = Worked()
    # spawned: a worker has the environment from its beginning, and nothing of this process
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool:
        options = (asked.states, asked.views, asked.data, asked.action == "record")
        work = {pool.submit(work_on, file, *options): file.stem for file in list_programs(asked.only)}
        for number, done in enumerate(as_completed(work), 1):
            worked = done.result()
            total.outputs += worked.outputs
            total.differences += worked.differences
            total.unknown += worked.unknown
            print(f"{number}/{len(work)}  {work[done]}: {worked.outputs} outputs", file=sys.stderr)
    if asked.action == "record":
        print(f"{total.outputs} outputs recorded in {asked.data}")
        return 0
    for group in group_equal(sorted(total.differences, key=lambda one: one.key)):
        print(describe_group(group))
    print(f"{total.outputs} outputs compared, {len(total.differences)} differ; {total.unknown} more are not recorded")
    return 1 if total.differences or not total.outputs else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.net", description="Keeps, or compares, what commands print.")
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("--data", type=Path, default=ROOT / ".cache" / "net", help="where the outputs are")
    parser.add_argument("--only", type=split, default=[""], help="programs with one of these in their names")
    parser.add_argument("--states", type=split, default=list(STATES), help=f"of {','.join(STATES)}")
    parser.add_argument("--views", type=split, default=[], help="names, or their beginnings: show.json,diff")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    if not list_programs(asked.only) or not set(asked.states) <= set(STATES):
        parser.error("no program has such a name, or a state is unknown")
    asked.data = asked.data.absolute()
    return asked


def split(names: str) -> list[str]:
    return names.split(",")


if __name__ == "__main__":
    sys.exit(main())
