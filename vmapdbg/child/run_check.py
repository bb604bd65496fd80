"""`vmapdbg run --check` on the side of the program's processes: hands on what each `Tensor.realize` reads and
writes, to a process that judges it by the numpy reference (`vmapdbg.child.compare.judge`).

`vmapdbg.commands.run` is the tool's side. The program stays as it is, but for the time that it takes: evidence is
handed on as soon as a call returns, because workers often end without running exit handlers.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from vmapdbg.child.evidence.call_by_call import start
from vmapdbg.child.evidence.suite_folder import SuiteFolder

FOLDER_VARIABLE = "VMAPDBG_CHECK"


def check_this_process() -> None:
    """Has what this process realizes judged. The overlay is installed already, unless tinygrad is observed as it is."""
    folder = SuiteFolder(Path(os.environ[FOLDER_VARIABLE]))
    atexit.register(start(folder))
