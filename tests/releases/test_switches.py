"""The switches of each release, as the evidence of `check` has them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_switches_can_be_read_without_tinygrad(tree: Path) -> None:
    """They are in the evidence, which the numpy reference takes in a process of its own."""
    code = "import pickle, sys\nfrom vmapdbg.child.memory import read_switches\n"
    code += "sys.stdout.buffer.write(pickle.dumps(read_switches()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(ROOT)]), "DEV": "CPU"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    switches = pickle.loads(done.stdout)
    assert switches["PCONTIG"] == 0
    assert {type(value) for value in switches.values()} <= {int, bool, str}
