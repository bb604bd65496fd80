"""Prints, as JSON, the Capture of each program on the tinygrad that is on PYTHONPATH: runs in a child.

python captured.py PROGRAM...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from observed import observe_programs


def capture_program(path: str, recorder: Any) -> str:
    from vmapdbg.child.capture.schedule import build_schedules
    from vmapdbg.child.live import build_capture
    from vmapdbg.model.store import dump_compact
    from vmapdbg.page.sentences import fill_sentences

    missing = tuple(recorder.missing)
    schedules = build_schedules(recorder.schedules, "c", keeps_failed=True)
    capture = build_capture(path, "c", None, schedules, missing=missing)
    return dump_compact(fill_sentences(capture))


if __name__ == "__main__":
    observed = observe_programs(sys.argv[1:])
    print(json.dumps({Path(path).stem: capture_program(path, recorder) for path, recorder in observed}))
