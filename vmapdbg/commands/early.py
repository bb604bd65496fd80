"""What a child made is read before the child has ended."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from pathlib import Path

from vmapdbg.model.capture import Capture
from vmapdbg.model.store import StoreError, load_capture

_POLL = 0.005
"""Seconds between two looks whether it is there."""


class EarlyCapture(threading.Thread):
    """Loads the Capture of a child as soon as it is there: the child takes a while to end, since all that the snippet
    made is let go of. `capture` is None where the child ended without one, or it cannot be read."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path):
        super().__init__(daemon=True)
        self.process, self.output = process, output
        self.capture: Capture | None = None

    def run(self) -> None:
        while not self.output.exists():
            if self.process.poll() is not None:
                return
            time.sleep(_POLL)
        with contextlib.suppress(StoreError):
            self.capture = load_capture(self.output)
