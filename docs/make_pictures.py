"""The pictures of the README and of docs/, drawn from real output, in the root of a checkout.

    python -m docs.make_pictures          draws them again
    python -m docs.make_pictures --check  tells those that are no longer what the tool draws, with exit code 1

A picture is compared by what it shows: the texts of an SVG, its boxes and arrows, and nearly all pixels of the
screenshot. Where a letter or a curve stands differs from one version of rich, Graphviz or Chromium to the next. The
screenshot needs Chromium, the DejaVu fonts and playwright (`pip install -e '.[browser]'`); without them it is left out,
and that is said.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import shutil
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI

from vmapdbg.commands.report import write_report
from vmapdbg.commands.shared.children import run_job
from vmapdbg.diff.captures import diff_captures
from vmapdbg.install.job import Job
from vmapdbg.install.patches import parse_patches
from vmapdbg.model.capture import Capture
from vmapdbg.page.graph.write import write_graph
from vmapdbg.page.text.run import print_capture, print_diff
from vmapdbg.page.view import View

FOLDER = Path(__file__).parent
SAMPLE = "samples/lost_range.py"
NETWORK = "bench/transformer.py"
# a value that is fused with its reader is not a buffer, and loses no range
FIXED, LOST = "all,-fuse-broadcast", "all,-fuse-broadcast,-ambient-ranges"
SCREENSHOT = "report.png"
MOST_PIXELS = 0.03
"""So many of the screenshot's may differ: the date of the run, how a font is smoothed."""
# the page takes the first font it knows of those that are there, and in another one its lines break elsewhere
_FONTS = ("DejaVu Sans", "DejaVu Sans Mono")
_STYLE = ':root { --mono: "DejaVu Sans Mono"; } body { font-family: "DejaVu Sans"; }'
# those of some fonts that are not there: text in one of them is as wide as in any font of no such name
_MISSING = """(names) => {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  const measure = (name, other) => {
    context.font = `40px "${name}", ${other}`;
    return context.measureText("mmmiii").width;
  };
  const isThere = (name) => ["serif", "cursive"].some((other) => measure(name, other) !== measure("no such", other));
  return names.filter((name) => !isThere(name));
}"""
_SVG = "{http://www.w3.org/2000/svg}"
_SHAPES = ("polygon", "path", "ellipse", "polyline")
# of the pixels of two pictures, the share that is not nearly as bright
_COMPARE = """async ([left, right]) => {
  const read = async (data) => {
    const image = new Image();
    image.src = data;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const a = await read(left), b = await read(right);
  if (a.width !== b.width || a.height !== b.height) return 1;
  let other = 0;
  const brightness = (pixels, at) => pixels[at] + pixels[at + 1] + pixels[at + 2];
  for (let at = 0; at < a.data.length; at += 4)
    if (Math.abs(brightness(a.data, at) - brightness(b.data, at)) > 180) other += 1;
  return other / (a.data.length / 4);
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw into another folder, and compare")
    if not parser.parse_args().check:
        draw_all(FOLDER)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw_all(folder)
        stale = [made.name for made in sorted(folder.iterdir()) if not is_same(FOLDER / made.name, made)]
    if stale:
        sys.exit(f"stale: {', '.join(stale)} (python -m docs.make_pictures draws them again; look at them)")


def draw_all(folder: Path) -> None:
    fixed, lost = capture(FIXED), capture(LOST)
    command = f"vmapdbg show {SAMPLE}"
    draw_terminal(
        folder / "show.svg", f"{command} --patches {FIXED}", 100, lambda console: print_capture(fixed, console)
    )
    without = folder / "show-without-ambient-ranges.svg"
    draw_terminal(without, f"{command} --patches {LOST}", 100, lambda console: print_capture(lost, console))
    changed = diff_captures(lost, fixed)
    title = f"vmapdbg diff --baseline={LOST}"
    draw_terminal(folder / "diff.svg", title, 140, lambda console: print_diff(changed, console))
    write_graph(fixed, folder / "graph.svg")
    browser = find_browser()
    if browser is not None:
        draw_report(folder / SCREENSHOT, browser)


def capture(patches: str) -> Capture:
    """Returns the schedule that reduces and indexes; the others of the sample are its inputs and variants."""
    made = run_job(Job(SAMPLE, patches=parse_patches(patches), values=True), stdout=2)
    shown = next(s for s in made.schedules if any(k.name == "r_3_2_2_2" for k in s.kernels))
    # the account counts the whole run
    return replace(made, schedules=(shown,), account=None)


def draw_terminal(file: Path, title: str, width: int, show: Callable[[Console], None]) -> None:
    console = Console(record=True, width=width, force_terminal=True, color_system="truecolor", file=io.StringIO())
    show(console)
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id=file.stem)
    # the reader's own monospace font will do: a picture should not fetch one from elsewhere
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    file.write_text(svg.replace("Fira Code, monospace", "monospace"), encoding="utf-8")


# *** the screenshot


def find_browser() -> str | None:
    """Returns Chromium's path, None where it or playwright is missing, and says so."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        found = None
    if found is None:
        print(f"{SCREENSHOT}: not drawn, there is no Chromium here, or no playwright", file=sys.stderr)
    return found


def draw_report(file: Path, browser: str) -> None:
    """The report of a network of 24 layers, the second kernel selected. Without its fonts it is not drawn."""
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "report.html"
        made = run_job(Job(NETWORK), stdout=2)
        write_report(View.of_one(made), page, [""])

        def shoot(opened: Any) -> None:
            if missing := opened.evaluate(_MISSING, _FONTS):
                print(f"{SCREENSHOT}: not drawn, there is no {' and no '.join(missing)} here", file=sys.stderr)
                return
            opened.goto(page.as_uri())
            opened.add_style_tag(content=_STYLE)
            opened.locator("details.kernel summary").nth(1).click()
            opened.wait_for_timeout(500)
            opened.screenshot(path=str(file))

        with_page(browser, shoot)


def with_page(browser: str, use: Callable[[Any], Any]) -> Any:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # root may not use the sandbox, as in most containers
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = started.chromium.launch(executable_path=browser, args=flags)
        try:
            # the page allows no style but its own
            page = launched.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light", bypass_csp=True)
            return use(page)
        finally:
            launched.close()


# *** comparing


def is_same(old: Path, new: Path) -> bool:
    """Tells whether a picture shows what another one shows."""
    if not old.exists():
        return False
    if new.suffix == ".png":
        return compare_pixels(old, new) <= MOST_PIXELS
    return read_svg(old) == read_svg(new)


def compare_pixels(old: Path, new: Path) -> float:
    browser = find_browser()
    assert browser is not None, "the new one was just drawn with it"
    files = ["data:image/png;base64," + base64.b64encode(file.read_bytes()).decode() for file in (old, new)]
    share = with_page(browser, lambda page: page.evaluate(_COMPARE, files))
    print(f"{new.name}: {share:.2%} of the pixels differ", file=sys.stderr)
    return share


def read_svg(file: Path) -> object:
    """What a picture shows: of a graph the texts and shapes of each box and arrow, of a terminal its lines."""
    root = ET.parse(file).getroot()
    parts = [part for part in root.iter(f"{_SVG}g") if part.get("class") in ("node", "edge", "cluster")]
    if parts:
        return {part.get("id"): _read_part(part) for part in parts}
    lines: dict[str, str] = defaultdict(str)
    for text in root.iter(f"{_SVG}text"):
        lines[text.get("y", "")] += "".join(text.itertext()).replace("\u00a0", " ")
    # every version of Python draws the same
    return [re.sub(r"Python \d+\.\d+\.\d+\S*", "Python", line) for line in lines.values()]


def _read_part(part: ET.Element) -> object:
    texts = ["".join(text.itertext()) for text in part.iter(f"{_SVG}text")]
    shapes = Counter(tag for tag in _SHAPES for _ in part.iter(f"{_SVG}{tag}"))
    return part.get("class"), texts, shapes


if __name__ == "__main__":
    main()
