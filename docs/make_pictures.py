"""Draws the pictures of the README from real output: `python docs/make_pictures.py` in the root of the checkout."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from vmapdbg.capture.launcher import Job, Streams, run_job
from vmapdbg.patches import parse_patches
from vmapdbg.render import print_capture

FOLDER = Path(__file__).parent
SAMPLE = "samples/lost_range.py"
PICTURES = {"show.svg": "all", "show-without-ambient-ranges.svg": "all,-ambient-ranges"}


def draw(file: Path, patches: str) -> None:
    job = Job(SAMPLE, (), "c", parse_patches(patches), None)
    capture = run_job(job, Streams(stdout=2))
    # the one that reduces and indexes; the others of the sample are its inputs and variants
    shown = next(s for s in capture.schedules if any(k.name == "r_3_2_2_2" for k in s.kernels))
    capture = replace(capture, schedules=(shown,))
    console = Console(record=True, width=100, force_terminal=True, color_system="truecolor", file=io.StringIO())
    print_capture(capture, console)
    option = "" if patches == "all" else f" --patches {patches}"
    svg = console.export_svg(title=f"vmapdbg show {SAMPLE}{option}", theme=MONOKAI, unique_id=file.stem)
    # the reader's own monospace font will do: a picture should not fetch one from elsewhere
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    file.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    for name, patches in PICTURES.items():
        draw(FOLDER / name, patches)
