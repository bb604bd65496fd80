"""What the tool finds of faults that tinygrad's own commits fixed, as the table of docs/found.md.

python -m tests.commits_found --clone DIR    prints the table; exit code 1 if docs/found.md has another row

A program runs on the commit that its header names, and `bisect --commits` over the span in it. Takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from vmapdbg.model.wording import format_plural

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "docs" / "found.md"
COMMANDS = ("check", "lint", "why --value")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clone", type=Path, required=True, help="a clone of tinygrad with its history")
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    given = parser.parse_args()
    documented = DOCUMENT.read_text(encoding="utf-8").splitlines()
    print(f"| program | {' | '.join(COMMANDS)} | bisect --commits |\n|---|---|---|---|---|")
    rows = [make_row(file, given.clone) for file in sorted(HERE.glob("programs/*.py")) if is_named(file, given)]
    return int(any(row not in documented for row in rows))


def is_named(file: Path, given: argparse.Namespace) -> bool:
    return not given.programs or file.stem in given.programs


def make_row(file: Path, clone: Path) -> str:
    """Runs all commands on a program, and returns and prints its row of the table."""
    header = dict(re.findall(r"^# (\w+): (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)
        on = ("--tinygrad", f"{clone}@{header['tinygrad']}")
        check = run(folder, "check", file.name, *on)
        lint = run(folder, "lint", file.name, "--format", "json", *on)
        why = run(folder, "why", "--value", file.name, *on)
        history = run(folder, "bisect", file.name, *header["bisect"].split(), "--tinygrad", str(clone))
    cells = [say_findings(check), say_findings(lint), say_rewrites(why), say_blamed(history)]
    row = f"| `{file.stem}` ({header['tinygrad']}) | {' | '.join(cells)} |"
    print(row, flush=True)
    return row


def run(folder: str, *arguments: str) -> dict[str, Any]:
    """Returns the document of a command; nothing if it has none."""
    output = () if "--format" in arguments else ("--json",)
    command = [sys.executable, "-m", "vmapdbg", *arguments, *output]
    path = os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout) if done.stdout.strip() else {}


def say_findings(document: dict[str, Any]) -> str:
    """Returns codes and lines: `VD201 line 7`; where it crashed; or that nothing was found."""
    found: list[str] = []
    for finding in document.get("findings", ()):
        line = (finding["line"] or ":?").rpartition(":")[2]
        found.append(f"{finding['code']} line {line}")
        crash = (document.get("error") or {}).get("crash")
        if finding["code"] == "VD204" and crash:
            found[-1] += f", raised at {crash['place']} by the rule at {crash['rule']}"
    if found:
        return "; ".join(dict.fromkeys(found))
    left = (document.get("account") or {}).get("left", ())
    open_things = [format_plural(one["count"], one["what"].removesuffix("s")) for one in left if one["count"]]
    return f"nothing ({', '.join(open_things)} not compared)" if open_things else "nothing"


def say_rewrites(document: dict[str, Any]) -> str:
    """Returns the first pass after which an output is wrong, and the rule of the rewrite that changed it."""
    found: list[str] = []
    for output in (output for schedule in document.get("schedules", ()) for output in schedule["outputs"]):
        wrong = next((step["name"] for step in output["passes"] if step["status"] == "wrong"), None)
        if wrong is not None:
            rule = (output["rewrite"] or {}).get("rule")
            found.append(f"{wrong}, rule {rule}" if rule else wrong)
    crash = (document.get("error") or {}).get("crash")
    if crash:
        found.append(f"fails in {crash['rewrite']}")
    return "; ".join(dict.fromkeys(found)) or "nothing"


def say_blamed(document: dict[str, Any]) -> str:
    """Returns the commits that are blamed, of how many in the span."""
    blamed = ", ".join(commit.split()[0] for commit in document["suspects"]) or "no commit"
    return f"{blamed} (by {document['by']}, of {document['commits'] + 1})"


if __name__ == "__main__":
    sys.exit(main())
