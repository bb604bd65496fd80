"""Runs the tool on a program, in a long-lived process that forks for each command."""

from __future__ import annotations

import contextlib
import importlib
import json
import lzma
import os
import re
import runpy
import shutil
import signal
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.net.differences import Difference, compare_texts
from tests.net.views import ROOT, RUN, RUNS, STOPPED, View, list_views

_LONGEST = 300
"""Seconds after which a command is stopped."""
_FILES = ("stdout", "stderr", "out.dot", "out.json", "out.svg", "out.html")
Outputs: TypeAlias = dict[str, dict[str, str]]
"""What commands print, by the name of the state and of the view."""
_SCRUBBED = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d": "DATE",
    # of two captures that were saved in the same minute the tool prints one date
    r"saved DATE, saved DATE": "saved DATE",
    r"(vmapdbg\"?:? \"?)\d+\.\d+\.\d+": r"\1VERSION",
    r"(\"name\": \"vmapdbg\",\s+\"version\": \")[\d.]+": r"\1VERSION",
    # of a traceback of the tool's own the last lines are kept: the lines of its code are about to move
    r'  File "(ROOT/(vmapdbg|tests/net)/|<frozen runpy>|[^"]*/site-packages/click/).*\n(    .*\n)*': "",
    r" at 0x[0-9a-f]+": " at ADDRESS",
    r"/tmp/(vmapdbg-|tmp)\w+": "TEMP",
}


@dataclass
class Worked:
    """The result of a program: how many outputs were recorded or compared, which of them differ, and how many have no
    recorded output."""

    outputs: int = 0
    differences: list[Difference] = field(default_factory=list[Difference])
    unknown: int = 0


def work_on(program: Path, states: Sequence[str], views: Sequence[str], folder: Path, records: bool) -> Worked:
    """Records the outputs of a program in a file of `folder`, or compares them with that file; runs in a worker."""
    outputs = observe_program(program, states, views)
    file = folder / f"{program.stem}.json.xz"
    known: Outputs = json.loads(lzma.decompress(file.read_bytes())) if file.exists() else {}
    if records:
        merged = {state: {**known.get(state, {}), **outputs.get(state, {})} for state in {**known, **outputs}}
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(lzma.compress(json.dumps(merged).encode()))
        return Worked(sum(map(len, outputs.values())))
    worked = Worked()
    for state, texts in outputs.items():
        for view, after in texts.items():
            before = known.get(state, {}).get(view)
            if before is None:
                worked.unknown += 1
                continue
            worked.outputs += 1
            if before != after:
                worked.differences.append(compare_texts(f"{program.stem}/{state}/{view}", before, after))
    return worked


def set_environment() -> None:
    """Sets the environment of the tool and its children, because their output depends on it."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "PAGER", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    os.environ |= {
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "TERM": "dumb",
        # tinygrad looks for no other device, and splits a kernel for so many threads
        "DEV": "CPU",
        "CPU_COUNT": "2",
        "OPENBLAS_NUM_THREADS": "1",
    }


def observe_program(program: Path, states: Sequence[str], wanted: Sequence[str]) -> Outputs:
    """Returns what the wanted views of a program print in some states. Each state is run once for all saved views."""
    views = {state: list_views(state, wanted) for state in states}
    with tempfile.TemporaryDirectory(prefix="net-") as folder, contextlib.chdir(folder):
        shutil.copy(program, program.name)
        Path("installed").symlink_to(sysconfig.get_path("purelib"))
        saves = {state for state, chosen in views.items() if any(view.reads_capture for view in chosen)}
        saves |= {view.before for chosen in views.values() for view in chosen if view.before}
        saved = {state: run_view(View(RUN, RUNS[RUN]), program.name, state) for state in sorted(saves)}
        partial = {state for state, text in saved.items() if STOPPED in text}
        outputs: Outputs = {}
        for state, chosen in views.items():
            whole = [v for v in chosen if not (v.reads_capture and {state, v.before} & partial)]
            texts = {v.name: saved[state] if v.name == RUN else run_view(v, program.name, state) for v in whole}
            outputs[state] = {name: text for name, text in texts.items() if STOPPED not in text}
        return outputs


def run_view(view: View, program: str, state: str) -> str:
    """Returns what a view prints and writes, scrubbed. It runs in a fork, which leaves nothing behind in this process
    but the modules that it needed, so that the next fork has them."""
    arguments = view.fill(program, state)
    for name in _FILES:
        Path(name).unlink(missing_ok=True)
    process = os.fork()
    if process == 0:
        os._exit(_be_tool(arguments))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if Path("modules").exists():
        _import_all(Path("modules").read_text(encoding="utf-8").split())
    parts = [f"$ vmapdbg {' '.join(arguments)}\nexit {status}\n"]
    for name in _FILES:
        if Path(name).exists():
            parts.append(f"--- {name}\n{Path(name).read_text(encoding='utf-8', errors='replace')}")
    return scrub("".join(parts), os.getcwd())


def _be_tool(arguments: list[str]) -> int:
    """Runs `python -m vmapdbg` in this process, and returns its exit code."""
    signal.alarm(_LONGEST)
    for number, name in enumerate((os.devnull, "stdout", "stderr")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    sys.argv = ["vmapdbg", *arguments]
    status = 0
    try:
        runpy.run_module("vmapdbg", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    Path("modules").write_text("\n".join(sys.modules), encoding="utf-8")
    return status


def _import_all(names: Sequence[str]) -> None:
    for name in names:
        if name not in sys.modules and not name.endswith("__main__"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def scrub(text: str, folder: str) -> str:
    """Returns a text without what differs from run to run, or from checkout to checkout: paths, dates, versions of the
    tool, addresses."""
    for path, name in ((folder, "WORK"), (str(ROOT), "ROOT"), (sys.prefix, "VENV"), (str(Path.home()), "HOME")):
        text = text.replace(path, name)
    for pattern, name in _SCRUBBED.items():
        text = re.sub(pattern, name, text)
    return text
