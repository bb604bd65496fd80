"""Does what README says, as a stranger does: a clone of the last commit, a new venv, no clang, no dot, 80 columns.

`python -m tests.readme` (needs git and the package index). The first command is typed as it is, then every other one,
but for the tests; what README shows must be what is printed. A failure means that the first minutes of a user go wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.shown import BLOCK, find_added, find_missing, list_printed

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 500
# what the user of a fresh shell does not have
REMOVED = re.compile(r"DEV|CPU|CC|PYTHON.*|VIRTUAL_ENV|VMAPDBG.*|NO_COLOR|FORCE_COLOR|XDG_STATE_HOME|CACHEDB")
# the commands that end with 1 on purpose: they find something
FINDING = ("lint", "check")


class ReadmeError(Exception):
    """README says what is not so. The message goes to the log of CI."""


class Stranger:
    """Types commands in a clone, with nothing on the path but a venv."""

    def __init__(self, folder: Path) -> None:
        self.clone, venv = folder / "vmapdbg", folder / "venv"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.clone)], check=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        kept = {name: value for name, value in os.environ.items() if not REMOVED.fullmatch(name)}
        caches = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
        self.variables = {**kept, **caches, "PATH": str(venv / "bin"), "COLUMNS": "80"}

    def type(self, command: str) -> str:
        """Runs a command of the shell; returns its stdout. Raises ReadmeError if it fails."""
        began = time.monotonic()
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.clone,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
        print(f"{time.monotonic() - began:6.1f} s  {command}", flush=True)
        is_finding = done.returncode == 1 and command.removeprefix("vmapdbg ").split()[0] in FINDING
        if done.returncode and not is_finding:
            raise ReadmeError(f"exit code {done.returncode} of {command}\n{done.stdout}{done.stderr}")
        return done.stdout


def list_commands(text: str) -> list[str]:
    """Returns the lines of README's shell blocks, without their comments and without the tests."""
    lines = [line for block in BLOCK.finditer(text) if block["language"] == "sh" for line in block["text"].splitlines()]
    return [line.partition("  #")[0].rstrip() for line in lines if "pytest" not in line]


def main() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    first, *others = list_commands(text)
    blocks = list_printed("README.md", text)
    (program,) = [block["text"] for block in BLOCK.finditer(text) if block["language"] == "python"]
    with tempfile.TemporaryDirectory(prefix="readme-") as name:
        user = Stranger(Path(name))
        if wrong := find_missing(blocks[0].text, user.type(first)):
            raise ReadmeError(f"the first command does not print what README shows below it:\n{wrong}")
        for block in blocks:
            printed = user.type(block.command)
            if wrong := find_missing(block.text, printed) or find_added(block.text, printed):
                raise ReadmeError(f"{block.command} prints something else than README shows:\n{wrong}\n---\n{printed}")
        for command in others:
            user.type(command)
        (user.clone / "program.py").write_text(program, "utf-8")
        user.type("python program.py")
    print(f"README is right: {len(blocks)} blocks, {len(others) + 2} other commands")


if __name__ == "__main__":
    try:
        main()
    except ReadmeError as error:
        sys.exit(f"tests.readme: {error}")
