"""Prints, as JSON, the Capture of each program on the tinygrad that is on PYTHONPATH: runs in a child.

python captured.py PROGRAM...
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from observed import schedule_program


def main() -> None:
    from vmapdbg.child.listen.hooks import start

    recorder = start()
    importlib.import_module("tinygrad.tensor")
    from vmapdbg.child.live import build_capture
    from vmapdbg.model.store import dump_compact
    from vmapdbg.page.sentences import fill_sentences

    captures: dict[str, Any] = {}
    for path in sys.argv[1:]:
        gc.collect()  # a UOp that is still there has the line of another program
        recorder.forget()
        schedule_program(path)
        capture = fill_sentences(
            build_capture(path, "c", None, recorder.schedules, missing=tuple(recorder.missing), keeps_failed=True)
        )
        captures[Path(path).stem] = dump_compact(capture)
    print(json.dumps(captures))


if __name__ == "__main__":
    main()
