"""Runs tinygrad's own tests twice, as they are and observed, and compares what they scheduled.

    python tests/releases/upstream_keys.py TREE TESTS FILE...

TREE holds the package tinygrad, TESTS its folder `test`. Prints one line a file; ends with 1 where anything differs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def run_tests(tree: Path, tests: Path, file: str, **settings: str) -> tuple[dict[str, Any], str]:
    """Returns what the plugin wrote, and pytest's outcome of each test."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "keys.json"
        path = os.pathsep.join(map(str, (tree, tests.parent, HERE, ROOT)))
        environment = {**os.environ, "PYTHONPATH": path, "KEYS_OUTPUT": str(output), "CACHELEVEL": "0", **settings}
        # a schedule that came from the cache is made once, and tests share it
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "-p", "keys_plugin"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(tests.parent), file],
            cwd=tests.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if not output.exists():
            raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
        outcomes = re.findall(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) (\S+)", done.stdout, flags=re.MULTILINE)
        return json.loads(output.read_text(encoding="utf-8")), "\n".join(sorted(map(" ".join, outcomes)))


def compare(tree: Path, tests: Path, file: str) -> bool:
    plain, outcomes = run_tests(tree, tests, file)
    seen, observed_outcomes = run_tests(tree, tests, file, KEYS_OBSERVE="1")
    same = sum(seen["keys"].get(test) == found for test, found in plain["keys"].items())
    kernels = sum(map(len, plain["keys"].values()))
    print(f"{file}: {same} of {len(plain['keys'])} tests schedule the same {kernels} kernels;", end=" ")
    other = set(outcomes.splitlines()) ^ set(observed_outcomes.splitlines())
    print(f"other outcomes: {sorted(other)}" if other else "same outcomes", end="; ")
    print(", ".join(f"{count} {name}" for name, count in seen["counts"].items()), *seen["missing"], sep="; ")
    unexplained = sum(count for name, count in seen["counts"].items() if " without " in name)
    return plain["keys"] == seen["keys"] and outcomes == observed_outcomes and not unexplained and not seen["missing"]


def main() -> None:
    tree, tests, *files = sys.argv[1:]
    results = [compare(Path(tree).resolve(), Path(tests).resolve(), file) for file in files]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
