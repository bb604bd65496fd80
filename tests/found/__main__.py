"""`python -m tests.found [NAME...]` runs the programs and writes the results into their heads."""

from __future__ import annotations

import sys

from tests.found.heads import RELEASES, find_programs, write_head
from tests.fuzz.hunt.runner import Runner


def main() -> None:
    wanted = sys.argv[1:]
    runners = {name: Runner(name) for name in RELEASES}
    for file in find_programs():
        if wanted and file.stem not in wanted:
            continue
        text = file.read_text(encoding="utf-8")
        outcomes = {name: runner.run(text) for name, runner in runners.items()}
        file.write_text(write_head(text, outcomes), encoding="utf-8")
        print(file.stem, *(f"{name} {outcome.kind}" for name, outcome in outcomes.items()), sep="  ", flush=True)
    for runner in runners.values():
        runner.stop()


if __name__ == "__main__":
    main()
