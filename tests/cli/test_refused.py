"""What the tool refuses before anything runs: one line on stderr, exit code 2, no file."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from tool import ROOT, run_command, run_tool

NOTEBOOK = "a.ipynb is a notebook: jupyter nbconvert --to script a.ipynb makes a Python file of it"
TWO_SNIPPETS = "-c CODE is the snippet, and ok.py is another one: give one of them"
NOTHING = "no SNIPPET given, and none is remembered here: run vmapdbg show SNIPPET first"
NOT_STOCK = "--decisions is about tinygrad as it is: --tinygrad VERSION|PATH, or --patches none"
NOT_WITH = "--decisions goes with neither --commits nor --reduce"
AS_TEXT = "--schedule, --kernel and --line are for a diff as text, not for --json and the page of -o"
TIMED = "--time runs both sides, and all.json is a saved capture: save them with show --time --save"
OWN = "is a saved capture: it has its own code, arguments, patches, target, tinygrad and times"
PAGES = "the ending must be one of .html, .htm"

# what is typed -> how the line begins
REFUSED = {
    # files that are not there, or not what they should be
    "show missing.py": "there is no file missing.py",
    "show .": ". is a directory, not a Python file",
    "run missing.py": "there is no file missing.py",
    "show a.ipynb": NOTEBOOK,
    "run a.ipynb": NOTEBOOK,
    "lint ok.py a.ipynb": NOTEBOOK,
    "show -": "- is stdin, and stdin is closed",
    "lint gone.py": "there is no file gone.py",
    "lint ok.py gone.py": "there is no file gone.py",
    "lint ok.py .": ". is a directory",
    "lint gone.json": "there is no file gone.json",
    "lint ok.json": "ok.json is not a vmapdbg capture: it has no schema number",
    "run --lint gone.py": "there is no file gone.py",
    "check gone.py": "there is no file gone.py",
    "why --value gone.py": "there is no file gone.py",
    "diff gone.py": "there is no file gone.py",
    "diff ok.py gone.py": "there is no file gone.py",
    "diff gone.py ok.py": "there is no file gone.py",
    "diff ok.py --baseline=gone.json": "cannot read gone.json",
    "diff broken.json broken.json": "broken.json is not a vmapdbg capture: ",
    "diff future.json future.json": "future.json has schema 99, newer than the 1 that this vmapdbg reads",
    # no snippet, or two
    "show": "Missing argument 'SNIPPET'",
    "run -m": "-m needs the name of a module",
    "diff --baseline": NOTHING,
    "graph -o x.svg": NOTHING,
    "why": NOTHING,
    "lint": NOTHING,
    "show ok.py -c 1": TWO_SNIPPETS,
    "why 1 ok.py -c 1": TWO_SNIPPETS,
    "lint ok.py ok.py -c 1": "-c CODE is the snippet: it takes no files",
    "show -c": "Option '-c' requires an argument",
    "run -c": "-c needs code",
    "diff a.py b.py c.py": "diff takes one snippet, two saved captures or two saved runs, or two snippets",
    "diff folder.html": "a saved run is compared with another one: vmapdbg diff BEFORE_DIR AFTER_DIR",
    "diff folder.html gone": "folder.html is not a saved run: it has no run.json",
    "diff ok.py folder.html": "ok.py is not a saved run: it has no run.json",
    "diff folder.html folder.html --time": "two saved runs take only --test, --all, --json and --exit-code",
    "diff ok.py --test a": "--test is for two saved runs: vmapdbg diff BEFORE_DIR AFTER_DIR",
    "diff ok.py --baseline=all.json --time": TIMED,
    "diff all.json ok.py --time": TIMED,
    "diff all.json all.json --time": TIMED,
    "diff ok.json": "a saved capture is compared with another one: vmapdbg diff before.json after.json",
    # files that cannot be written
    "show ok.py --save no/such/folder.json": "cannot write no/such/folder.json: there is no folder no/such",
    "show ok.py --save folder.html": "cannot write folder.html: it is a folder",
    "show ok.py --save link.html": "cannot write link.html: it is the snippet",
    "report ok.py -o link.html": "cannot write link.html: it is the snippet",
    "lint ok.py -o ok.py": "cannot write ok.py: it is the snippet",
    "lint ok.py -o no/out.txt": "cannot write no/out.txt: there is no folder no",
    "lint ok.py -o folder.html": "cannot write folder.html: it is a folder",
    "run --lint-output no/out.json ok.py": "cannot write no/out.json",
    "report ok.py -o page.txt": f"page.txt: {PAGES}",
    "report ok.py -o no/page.html": "cannot write no/page.html: there is no folder no",
    "report ok.py -o folder.html": "cannot write folder.html: it is a folder",
    "report snippet.html -o snippet.html": "cannot write snippet.html: it is the snippet",
    "diff ok.py -o x.txt": f"x.txt: {PAGES}",
    "diff ok.py -o no/such.html": "cannot write no/such.html: there is no folder no",
    "diff ok.py -o page.html --kernel 0": AS_TEXT,
    "graph ok.py": "Missing option '-o' / '--output'",
    "graph ok.py -o x.bmp": "x.bmp: the ending must be one of .svg, .png, .pdf, .dot, .json",
    "graph ok.py -o no/such/x.svg": "cannot write no/such/x.svg: there is no folder no/such",
    "bisect ok.py -o x.py": "-o is the file for --reduce",
    "tune all.json": "all.json is a saved capture: this command runs a snippet",
    "tune -c 1 --write": "--write changes a file, and this code was typed",
    "tune ok.py --by speed": "Invalid value for '--by': 'speed' is not one of 'time', 'memory'",
    "tune ok.py --budget 0": "Invalid value for '--budget': '0' is not a number of seconds over 0",
    # parts that a capture does not have
    "graph all.json -o x.svg --around 9999": "there is no node 9999 in schedule 4",
    "graph all.json -o x.svg --schedule 7": "there is no schedule 7: the last is 4",
    "why 9999 all.json": "there is no node 9999: schedule 4 has 57 nodes",
    "why r_nonsense all.json": "no kernel and no line of samples/lost_range.py is called 'r_nonsense'",
    "why 3 all.json --schedule 7": "there is no schedule 7: the last is 4",
    "show all.json --schedule 7": "there is no schedule 7: the last is 4",
    "show all.json --kernel nix": "there is no kernel nix: ",
    "show all.json --line nix.py:3": "no node is made at nix.py:3",
    "show all.json --kernel 0 --line a.py:1": "--kernel and --line: choose one",
    "diff all.json all.json --kernel r_nonsense": (
        "there is no kernel r_nonsense: E_3_4, r_3_2_2_2, E_3_2, E_3_2n1, r_3_2_4"
    ),
    "diff all.json all.json --line a.py:999": "no node is made at a.py:999",
    "diff all.json all.json --schedule 7": "there is no schedule 7: the last is 4",
    "diff all.json all.json --kernel 0 --line a.py:1": "--kernel and --line: choose one",
    "diff all.json all.json --kernel 0 --json": AS_TEXT,
    # what a saved capture has no use for
    "show ok.json --patches none": f"ok.json {OWN}",
    "show ok.json --time": f"ok.json {OWN}",
    "show ok.json --target metal": f"ok.json {OWN}",
    "show ok.json -- a": f"ok.json {OWN}",
    "graph ok.json -o x.svg -- a": f"ok.json {OWN}",
    "lint ok.json --target metal": f"ok.json {OWN}",
    "diff all.json all.json --target metal": f"all.json {OWN}",
    "diff ok.py all.json": "a saved capture is compared with another one: vmapdbg diff before.json after.json",
    "why --value ok.json": "--value runs the snippet: a saved capture has no values",
    # options
    "nonsense": "No such command 'nonsense'",
    "shwo": "No such command 'shwo'. Did you mean 'show'?",
    "show ok.py --nonsense": "No such option '--nonsense'",
    "show ok.py --patches all,-nonsense": "Invalid value for '--patches': unknown patch '-nonsense': choose from",
    "show ok.py --patches all,-vmap-ops": "Invalid value for '--patches': patch 'vmap-ops' is always on",
    "patches --patches soup": "Invalid value for '--patches': unknown patch 'soup'",
    "show ok.py --target abacus": "Invalid value for '--target': 'abacus' is not one of 'c', 'metal'",
    "show ok.py --only ranges,soup": "Invalid value for '--only': unknown section 'soup': choose from ranges",
    "show ok.py --only ''": "Invalid value for '--only': unknown section '': choose from ranges",
    "show ok.py --schedule last": "Invalid value for '--schedule': 'last' is not a schedule number and not 'all'",
    "show ok.py --timeout -1": "Invalid value for '--timeout': '-1' is not a number of seconds over 0",
    "show ok.py --timeout nan": "Invalid value for '--timeout': 'nan' is not a number of seconds over 0",
    "--color blue": "Invalid value for '--color': 'blue' is not one of 'auto', 'always', 'never'",
    "patches --width 3": "Invalid value for '--width': 3 is not in the range x>=20",
    "schema lint --width 30": "No such option '--width'",
    "schema kernel": "Invalid value for '{bisect-commits|bisect-decisions|bisect|capture|check|diff|graph|lint",
    "lint ok.py --select VD999": (
        "Invalid value for '--select': unknown code 'VD999': choose from VD101, VD102, VD103, VD104, VD105, VD106"
    ),
    "lint ok.py --select VD101,,VD102": "Invalid value for '--select': unknown code '': choose from VD101",
    "lint ok.py --ignore ''": "Invalid value for '--ignore': unknown code '': choose from VD101",
    "lint ok.py --select VD101 --ignore VD101": "--select and --ignore leave no code to look for",
    "lint ok.py --format xml": (
        "Invalid value for '--format': 'xml' is not one of 'text', 'concise', 'json', 'github', 'sarif'"
    ),
    "lint --explain VD1": (
        "Invalid value for '--explain': unknown code 'VD1': choose from VD101, VD102, VD103, VD104, VD105, VD106"
    ),
    "lint ok.py --baseline nonsense": (
        "unknown patch 'nonsense': choose from all, none, ambient-ranges, nested-ranges, close-ranges"
    ),
    "run --lint --target abacus ok.py": (
        "Invalid value for '--target': 'abacus' is not one of 'c', 'metal', 'cuda', 'opencl', 'hip', 'wgsl', 'llvm'"
    ),
    "run --save x --lint ok.py": "--lint",
    "run --check --lint ok.py": "--lint and --check are for separate runs",
    "run --check --save saved ok.py": "--save and --check are for separate runs",
    "run --json ok.py": "--json",
    "diff ok.py --baseline=soup": (
        "unknown patch 'soup': choose from all, none, ambient-ranges, nested-ranges, close-ranges, fuse-broadcast"
    ),
    "diff ok.py ok.py --baseline=none": "ok.py is compared with ok.py: with two of them there is no --baseline",
    "why --json ok.py": "--json is for --value",
    "bisect ok.py --runs 1": "Invalid value for '--runs': 1 is not in the range x>=2",
    "bisect ok.py --baseline none": "--baseline is for --decisions",
    "bisect ok.py --decisions": NOT_STOCK,
    "bisect ok.py --decisions --patches all": NOT_STOCK,
    "bisect ok.py --decisions --commits a..b": NOT_WITH,
    "bisect ok.py --decisions --reduce": NOT_WITH,
    "bisect ok.py --decisions --by kernels --baseline 0.13.0": (
        "--baseline is what is right: with --decisions it is for --by values and --by crash"
    ),
    "bisect ok.py --decisions --baseline a.json": "--baseline is run, for its values: a saved capture has none",
    # trees and interpreters
    "show ok.py --tinygrad nowhere": "there is no folder nowhere, and it is not a version of tinygrad such as 0.14.0",
    "show ok.py --tinygrad .": ". is not a tinygrad: there is no tinygrad/__init__.py in it",
    "show ok.py --tinygrad 0.11.0": "tinygrad 0.11.0 (0.11.0) is too old: vmapdbg observes 0.12 and later",
    "show ok.py --tinygrad .@master": ". is in no git repository: it has no revisions",
    "show ok.py --python no-such-python": "--python: there is no program no-such-python",
    "show ok.py --python true": "--python: true is not a Python interpreter",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_it_is_one_line_before_anything_runs(typed: str, tmp_path: Path) -> None:
    for name in ("a.ipynb", "ok.py", "snippet.html"):
        (tmp_path / name).write_text("open('ran', 'w')", encoding="utf-8")
    for name, text in {"ok.json": "{}", "broken.json": "{", "future.json": '{"schema": 99}'}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "tests" / "golden" / "lost_range_after.json", tmp_path / "all.json")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "link.html").symlink_to("ok.py")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}
    done = run_tool(*shlex.split(typed), cwd=tmp_path, stdin=None)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(f"vmapdbg: {REFUSED[typed]}")
    assert done.stderr.count("\n") == 1
    after = {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir() if path.name != ".vmapdbg"}
    assert after == before


def test_a_shell_may_close_stdin(tmp_path: Path) -> None:
    command = ("sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "vmapdbg", "show", "no.py")
    done = run_command(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr


@pytest.mark.parametrize("typed", ["lint -o run.html", "report -o run.html", "bisect --reduce -o run.html"])
def test_the_snippet_of_the_last_show_is_not_overwritten(typed: str, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text("", encoding="utf-8")
    run_tool("show", "run.html", cwd=tmp_path)
    done = run_tool(*typed.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "vmapdbg: cannot write run.html: it is the snippet\n")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == ""


def test_the_capture_of_a_graph_is_not_overwritten(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "golden" / "lost_range_after.json", tmp_path / "all.json")
    done = run_tool("graph", "all.json", "-o", "all.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "vmapdbg: cannot write all.json: it is the snippet\n")
