"""What the tool finds of the faults that tests/faults plants: `python -m bench.faults`.

One row a fault: what lint says of it without running anything, and the place in its findings of the one that names the
right line and node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).parent.parent


def main() -> None:
    console = Console()
    os.environ.setdefault("DEV", "PYTHON")
    start = time.monotonic()
    rows = lint_faults()
    seconds = time.monotonic() - start
    table = Table("fault", "what is wrong", "lint", "right place")
    for row in rows:
        table.add_row(row["name"], row["what"], *describe(row))
    console.print(table)
    seen = [row for row in rows if row["codes"]]
    first = sum(row["rank"] == 1 and row["found"] for row in seen)
    third = sum(row["rank"] in (1, 2, 3) and row["found"] for row in seen)
    console.print(
        f"lint finds {sum(row['found'] for row in seen)} of the {len(seen)} faults that can be seen without running "
        f"({first} with the right node in first place, {third} in the first three), in {seconds:.1f} s; "
        f"{len(rows) - len(seen)} faults change only values"
    )


def describe(row: dict[str, Any]) -> tuple[str, str]:
    if not row["codes"]:
        return f"- ({row['unseen']})", ""
    codes = ", ".join(dict.fromkeys(finding["code"] for finding in row["findings"]))
    return codes if row["found"] else f"NOT FOUND {codes}", str(row["rank"] or "no")


def lint_faults() -> list[dict[str, Any]]:
    """Returns a row for each fault, of the table and of the runner together."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.runner"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("planting", total=None)
        found = []
        for line in process.stdout:
            found.append(json.loads(line))
            progress.update(task, advance=1, description=found[-1]["name"])
    if process.wait():
        raise SystemExit("bench.faults: the runner failed")
    return found


if __name__ == "__main__":
    main()
