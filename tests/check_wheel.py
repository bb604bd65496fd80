"""Builds the wheel and tries it in an empty environment, in a folder without the checkout.

`python tests/check_wheel.py` (needs `build`, and the package index). CI runs it. A failure means that
`pip install vmapdbg` does not work for users, although everything works in the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SNIPPET = ROOT / "samples" / "lost_range.py"
# a release that the overlay does not patch
OTHER_RELEASE = "0.14.0"
# what would let the checkout in, or pip ask something
REMOVED_VARIABLES = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VMAPDBG_PATCHES"}


class WheelError(Exception):
    """The wheel is not what it should be. The message goes to the log of CI."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="vmapdbg-wheel-") as folder:
        work = Path(folder)
        try:
            wheel = build_wheel(work / "dist")
            check_contents(wheel)
            program = install_wheel(f"{wheel}[patches]", work / "venv")
            check_patches(program, work)
            check_show(program, work)
            check_beside_another(wheel, work / "other")
        except WheelError as error:
            print(f"wheel: {error}", file=sys.stderr)
            return 1
    print(f"wheel: {wheel.name} works outside the checkout")
    return 0


def run(command: list[str], cwd: Path) -> str:
    """Returns stdout. Raises WheelError when the command fails."""
    environment = {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES}
    options = {"cwd": cwd, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 600}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        shown = " ".join(Path(part).name if os.sep in part else part for part in command)
        raise WheelError(f"{shown} ended with {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


def build_wheel(into: Path) -> Path:
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(into), str(ROOT)], ROOT)
    wheels = list(into.glob("*.whl"))
    if len(wheels) != 1:
        raise WheelError(f"one wheel was expected: {wheels}")
    return wheels[0]


def check_contents(wheel: Path) -> None:
    """The overlay is inside the package. A top-level tinygrad/ would overwrite files of the installed tinygrad."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    package = f"{wheel.name.split('-')[0]}"
    unexpected = {top for top in tops if top != package and not top.endswith(".dist-info")}
    if unexpected:
        raise WheelError(f"the wheel installs {', '.join(sorted(unexpected))} beside {package}")
    packed = {name.removeprefix(f"{package}/_overlay/") for name in names if "/_overlay/" in name}
    missing = {str(path.relative_to(ROOT / "tinygrad")) for path in (ROOT / "tinygrad").rglob("*.py")} - packed
    if missing:
        raise WheelError(f"the wheel lacks files of the overlay: {', '.join(sorted(missing))}")
    if f"{package}/schemas/capture.json" not in names:
        raise WheelError("the wheel lacks the JSON Schemas of its documents")
    if f"{package}/install/bootstrap/sitecustomize.py" not in names:
        raise WheelError("the wheel lacks install/bootstrap/sitecustomize.py: workers would get no overlay")


def install_wheel(wheel: str, folder: Path, *before: str) -> Path:
    """Returns the installed `vmapdbg` program. `before` is installed first, as on a user's machine."""
    venv.create(folder, with_pip=True)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(scripts / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    for wanted in (*before, wheel):
        run([*pip, "install", "--quiet", wanted], folder)
    run([*pip, "check"], folder)
    return scripts / "vmapdbg"


def check_patches(program: Path, work: Path) -> None:
    table = run([str(program), "patches"], work)
    for name in ("vmap-ops", "ambient-ranges", "nested-ranges", "close-ranges"):
        if name not in table:
            raise WheelError(f"`vmapdbg patches` does not name {name}:\n{table}")


def check_show(program: Path, work: Path) -> None:
    """The document says that the overlay of the wheel was at work: its patches are on, and there are kernels."""
    snippet = work / "elsewhere" / SNIPPET.name
    snippet.parent.mkdir()
    shutil.copy(SNIPPET, snippet)
    document = show(program, snippet)
    if not document["patches"]["ambient-ranges"] or document["error"] is not None:
        raise WheelError(f"patches {document['patches']}, error {document['error']}")
    if not any(schedule["kernels"] for schedule in document["schedules"]):
        raise WheelError("`vmapdbg show` found no kernel")


def check_beside_another(wheel: Path, folder: Path) -> None:
    """The wheel alone does not change the user's tinygrad, and observes it."""
    program = install_wheel(str(wheel), folder, f"tinygrad=={OTHER_RELEASE}")
    snippet = folder / "mean.py"
    snippet.write_text("from tinygrad import Tensor\ny = Tensor.empty(4, 8).mean(1)\n", encoding="utf-8")
    document = show(program, snippet)
    if document["versions"]["tinygrad"] != OTHER_RELEASE or document["mode"] != "observe":
        raise WheelError(f"beside tinygrad {OTHER_RELEASE}: {document['versions']}, {document['mode']}")
    if document["error"] is not None or not document["schedules"][0]["kernels"]:
        raise WheelError(f"beside tinygrad {OTHER_RELEASE}: error {document['error']}, or no kernel")


def show(program: Path, snippet: Path) -> dict[str, Any]:
    """Returns the capture of a snippet."""
    output = run([str(program), "show", snippet.name, "--json"], snippet.parent)
    try:
        return json.loads(output)
    except json.JSONDecodeError as error:
        raise WheelError(f"`vmapdbg show --json` printed no JSON document: {error}\n{output[:500]}") from None


if __name__ == "__main__":
    sys.exit(main())
