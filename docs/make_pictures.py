"""Draws the pictures of the README from real output: `python docs/make_pictures.py` in the root of a checkout."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from vmapdbg.commands.launcher import Streams, run_job
from vmapdbg.diff import diff_captures
from vmapdbg.job.job import Job
from vmapdbg.job.patches import parse_patches
from vmapdbg.model.capture import Capture
from vmapdbg.render.graph.write import write_graph
from vmapdbg.render.text.capture import print_capture
from vmapdbg.render.text.diff import print_diff

FOLDER = Path(__file__).parent
SAMPLE = "samples/lost_range.py"
# a value that is fused with its reader is no buffer, and loses no range
FIXED, LOST = "all,-fuse-broadcast", "all,-fuse-broadcast,-ambient-ranges"


def capture(patches: str) -> Capture:
    """Returns the schedule that reduces and indexes; the others of the sample are its inputs and variants."""
    made = run_job(Job(SAMPLE, patches=parse_patches(patches), values=True), Streams(stdout=2))
    shown = next(s for s in made.schedules if any(k.name == "r_3_2_2_2" for k in s.kernels))
    return replace(made, schedules=(shown,))


def draw_terminal(name: str, title: str, width: int, show: Callable[[Console], None]) -> None:
    console = Console(record=True, width=width, force_terminal=True, color_system="truecolor", file=io.StringIO())
    show(console)
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    # the reader's own monospace font will do: a picture should not fetch one from elsewhere
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (FOLDER / f"{name}.svg").write_text(svg.replace("Fira Code, monospace", "monospace"), encoding="utf-8")


def main() -> None:
    fixed, lost = capture(FIXED), capture(LOST)
    command = f"vmapdbg show {SAMPLE}"
    draw_terminal("show", f"{command} --patches {FIXED}", 100, lambda console: print_capture(fixed, console))
    draw_terminal(
        "show-without-ambient-ranges", f"{command} --patches {LOST}", 100, lambda console: print_capture(lost, console)
    )
    changed = diff_captures(lost, fixed)
    draw_terminal("diff", f"vmapdbg diff --baseline={LOST}", 140, lambda console: print_diff(changed, console))
    write_graph(fixed, FOLDER / "graph.svg")


if __name__ == "__main__":
    main()
