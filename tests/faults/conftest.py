"""Plants every fault once, for all tests of this folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def outcomes() -> dict[str, dict[str, Any]]:
    """What lint says of each fault; all of them are planted in one child process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.runner"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["name"]: row for row in rows}
