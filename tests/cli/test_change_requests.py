"""Tries each row of the table "How to add something" in CONTRIBUTING.md: makes the change in a copy of the tool, and
looks for it in every view. If one of these tests fails, the table misleads contributors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from tool import ROOT, run_tool

SNIPPET = str(ROOT / "samples" / "lost_range.py")
TABLE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


class Copy:
    """A copy of the tool that a test changes and runs. `cwd` has two saved captures, before.json and after.json."""

    def __init__(self, folder: Path, cwd: Path) -> None:
        self.folder, self.cwd = folder, cwd

    def write(self, file: str, text: str) -> None:
        """Writes a new file of the tool."""
        path = self.folder / file
        assert not path.exists()
        path.write_text(text, encoding="utf-8")

    def replace(self, file: str, old: str, new: str) -> None:
        """Replaces the first `old` in a file of the tool."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} does not have {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def append(self, file: str, text: str) -> None:
        with (self.folder / file).open("a", encoding="utf-8") as opened:
            opened.write(text)

    def try_run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_tool(*arguments, cwd=self.cwd, PYTHONPATH=str(self.folder))

    def run(self, *arguments: str, status: int = 0) -> str:
        done = self.try_run(*arguments)
        assert done.returncode == status, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the captures of a snippet without one patch (before.json) and with all of them (after.json)."""
    folder = tmp_path_factory.mktemp("saved")
    for name, patches in (("before", "all,-ambient-ranges"), ("after", "all")):
        run_tool("show", SNIPPET, "--patches", patches, "--save", f"{name}.json", cwd=folder)
        assert (folder / f"{name}.json").exists()
    return folder


@pytest.fixture
def copy(tmp_path: Path, saved: Path) -> Copy:
    folder = tmp_path / "copy"
    for part in ("vmapdbg", "tinygrad"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    cwd = tmp_path / "work"
    shutil.copytree(saved, cwd, ignore=shutil.ignore_patterns(".vmapdbg"))
    return Copy(folder, cwd)


def rows() -> dict[str, str]:
    """Returns the table: the name of each row, and where the change is made."""
    found = re.findall(r"^\| ([^|]+) \| [0-9][^|]* \| (.+) \|$", TABLE, re.MULTILINE)
    return dict(found)


def assert_in_table(row: str, *files: str) -> None:
    """The table names each file that the test changes."""
    for file in files:
        assert file in rows()[row], f"the row {row!r} does not name {file}"


@pytest.mark.slow
def test_a_section_of_show(copy: Copy) -> None:
    assert_in_table("a section of `show`, `diff` and `report`", "vmapdbg/page/text/", "vmapdbg/page/sections.py")
    code = (
        "def print_count(view):\n"
        "    count = 2 if view.is_pair else len(view.schedule.kernels)\n"
        "    view.page.add(f'Count: {count} kernels here')\n"
    )
    copy.write("vmapdbg/page/text/count.py", code)
    copy.replace("vmapdbg/page/sections.py", "SECTIONS = {\n", 'SECTIONS = {\n    "count": "count:print_count",\n')
    assert "kernels here" in copy.run("show", "after.json")
    assert "kernels here" in copy.run("show", "after.json", "--only", "count")
    assert "Kernels" not in copy.run("show", "after.json", "--only", "count")
    assert "kernels here" in copy.run("diff", "before.json", "after.json", "--all")
    for command in (("report", "after.json"), ("diff", "before.json", "after.json")):
        copy.run(*command, "-o", "page.html")
        page = (copy.cwd / "page.html").read_text(encoding="utf-8")
        assert re.search(r"<pre>Count: \d kernels here</pre>", page)


@pytest.mark.slow
def test_a_lint_code(copy: Copy) -> None:
    assert_in_table("a lint code", "vmapdbg/lint/")
    code = (
        "\n\n@rule('VD199', 'any kernel', 'warning')\n"
        "def find_any(capture, _):\n"
        '    """A kernel, found because it is there."""\n'
        "    for schedule in capture.schedules:\n"
        "        for number in range(len(schedule.kernels)):\n"
        "            yield kernel_finding('VD199', schedule, number, 'it is a kernel', 'nothing')\n"
    )
    copy.append("vmapdbg/lint/cost.py", code)
    assert "found because it is there" in copy.run("lint", "--explain", "VD199")
    for form in ("text", "concise", "json", "github", "sarif"):
        assert "VD199" in copy.run("lint", "after.json", "--select", "VD199", "--format", form, status=1)
    assert "VD199" in copy.run("show", SNIPPET)
    assert copy.run("lint", "after.json", "--ignore", "VD199").count("VD199") == 0


@pytest.mark.slow
def test_a_target(copy: Copy) -> None:
    assert_in_table("a target", "vmapdbg/install/targets.py")
    line = '    "cuda90": Target("cstyle", ("CUDARenderer",), "CUDA", "sm_90", "cuda"),\n'
    copy.replace("vmapdbg/install/targets.py", "TARGETS = {\n", f"TARGETS = {{\n{line}")
    assert "cuda90" in copy.run("show", "--help")
    assert "__global__" in copy.run("show", SNIPPET, "--target", "cuda90")
    softmax = str(ROOT / "samples" / "softmax.py")
    assert "__global__" in copy.run("show", softmax, "--target", "cuda90", "--patches", "none")
    assert "\x1b[" in copy.run("show", SNIPPET, "--target", "cuda90", "--only", "source", "--color", "always")
    copy.run("report", SNIPPET, "--target", "cuda90", "-o", "report.html")
    assert "__global__" in (copy.cwd / "report.html").read_text(encoding="utf-8")
    (copy.cwd / "pyproject.toml").write_text('[tool.vmapdbg]\ntarget = "cuda90"\n', encoding="utf-8")
    (copy.cwd / "net.py").write_text("from tinygrad import Tensor\nTensor.ones(3, 3).contiguous().realize()\n")
    assert "__global__" in copy.run("show", "net.py")


@pytest.mark.slow
def test_a_patch(copy: Copy) -> None:
    assert_in_table("a patch", "vmapdbg/install/patches.py")
    line = '    Patch("new-patch", "it does nothing yet", "ours"),\n'
    copy.replace("vmapdbg/install/patches.py", "PATCHES = (\n", f"PATCHES = (\n{line}")
    assert "it does nothing yet" in copy.run("patches")
    copy.run("show", SNIPPET, "--patches", "all,-new-patch", "--save", "without.json")
    assert json.loads((copy.cwd / "without.json").read_text(encoding="utf-8"))["patches"]["new-patch"] is False


@pytest.mark.slow
def test_an_output_format_of_lint(copy: Copy) -> None:
    assert_in_table("an output format of `lint`", "vmapdbg/commands/lint.py")
    function = (
        "def print_table(linted: Sequence[Linted]) -> None:\n"
        "    for finding in _findings_of(linted):\n"
        "        print(f'{finding.code};{finding.line}')\n\n\n"
    )
    copy.replace("vmapdbg/commands/lint.py", "FORMATS: dict", f"{function}FORMATS: dict")
    copy.replace("vmapdbg/commands/lint.py", '    "sarif": print_sarif,\n', '    "table": print_table,\n')
    printed = copy.run("lint", "before.json", "--format", "table", status=1)
    assert re.search(r"^VD\d+;.+:\d+$", printed, re.MULTILINE)
    copy.run("lint", "before.json", "--format", "table", "-o", "table.csv", status=1)
    assert (copy.cwd / "table.csv").read_text(encoding="utf-8") == printed
    done = copy.try_run("lint", "before.json", "--format", "table", "-o", ".")
    assert (done.returncode, done.stderr) == (2, "vmapdbg: cannot write .: it is a folder\n")


@pytest.mark.slow
def test_a_subcommand(copy: Copy) -> None:
    assert_in_table("a subcommand", "vmapdbg/commands/NAME.py")
    code = (
        "import click\n"
        "from vmapdbg.commands.shared import console, jobs, options\n"
        "@click.command(cls=options.SnippetCommand)\n"
        "@options.snippet\n"
        "@options.of_job\n"
        "@console.display_options\n"
        "def count(snippet, given):\n"
        '    """Count the kernels of SNIPPET."""\n'
        "    capture = jobs.load_or_run(snippet, given)\n"
        "    console.make_console().print(f'{len(capture.kernels)} kernels')\n"
        "    console.end_after(capture)\n"
    )
    copy.write("vmapdbg/commands/count.py", code)
    assert "Count the kernels of SNIPPET." in copy.run("--help")
    assert "--width" in copy.run("count", "--help")
    assert re.fullmatch(r"\d+ kernels\n", copy.run("count", "after.json"))
    assert re.fullmatch(r"\d+ kernels\n", copy.run("count", SNIPPET))
    assert copy.try_run("count", "missing.py").stderr == "vmapdbg: there is no file missing.py\n"


@pytest.mark.slow
def test_a_setting(copy: Copy) -> None:
    assert_in_table("a setting in pyproject.toml", "vmapdbg/commands/shared/settings.py")
    settings, graph = "vmapdbg/commands/shared/settings.py", "vmapdbg/commands/graph.py"
    copy.replace(settings, "    timeout: float", "    depth: int | None = None\n    timeout: float")
    copy.replace(settings, '        "timeout":', '        "depth": click.IntRange(min=1),\n        "timeout":')
    reads = (
        "from vmapdbg.commands.shared.settings import find_settings\n    depth = depth or find_settings(snippet).depth"
    )
    copy.replace(graph, "    other = None\n", f"    {reads}\n    other = None\n")
    file = copy.cwd / "pyproject.toml"
    sizes: list[int] = []
    for text in ("", "[tool.vmapdbg]\ndepth = 1\n"):
        file.write_text(text, encoding="utf-8")
        copy.run("graph", "after.json", "-o", "graph.json", "--fold", "0")
        sizes.append(len(json.loads((copy.cwd / "graph.json").read_text(encoding="utf-8"))["nodes"]))
    assert sizes[1] < sizes[0]
    file.write_text("[tool.vmapdbg]\ndepth = 0\n", encoding="utf-8")
    done = copy.try_run("graph", "after.json", "-o", "graph.json")
    assert done.returncode == 2
    assert "depth in [tool.vmapdbg]: 0 is not in the range x>=1" in done.stderr


@pytest.mark.slow
def test_a_json_field(copy: Copy) -> None:
    assert_in_table("a JSON field", "vmapdbg/model/capture.py", "vmapdbg/child/capture/")
    copy.replace(
        "vmapdbg/model/capture.py",
        "    measured: Measured | None = None\n",
        "    measured: Measured | None = None\n    nodes_inside: int = 0\n",
    )
    copy.replace(
        "vmapdbg/child/capture/kernels.py",
        "            name=compiled.name,\n",
        "            name=compiled.name,\n            nodes_inside=len(nodes),\n",
    )
    assert '"nodes_inside": 0' in copy.run("show", "after.json", "--json")
    kernels = json.loads(copy.run("show", SNIPPET, "--json"))["schedules"][0]["kernels"]
    assert max(kernel["nodes_inside"] for kernel in kernels) > 0


@pytest.mark.slow
def test_a_graph_layout(copy: Copy) -> None:
    assert_in_table("a graph layout", "vmapdbg/page/graph/", "vmapdbg/model/vocabulary.py")
    code = (
        "from dataclasses import replace\n"
        "from vmapdbg.page.graph.kernels import STAGE as KERNELS\n"
        "STAGE = replace(KERNELS, title='boxes')\n"
    )
    copy.write("vmapdbg/page/graph/boxes.py", code)
    copy.replace("vmapdbg/model/vocabulary.py", 'StageName = Literal["tensor"', 'StageName = Literal["boxes", "tensor"')
    for ending in ("svg", "dot", "json"):
        copy.run("graph", "after.json", "--stage", "boxes", "-o", f"graph.{ending}")
        assert "boxes" in (copy.cwd / f"graph.{ending}").read_text(encoding="utf-8")


@pytest.mark.slow
def test_another_file_format(copy: Copy) -> None:
    assert_in_table("another file format", "vmapdbg/page/", "vmapdbg/model/store.py")
    command = "vmapdbg/commands/report.py"
    code = (
        "def render_csv(capture):\n"
        "    lines = [f'{kernel.name},{kernel.executed_ops}' for kernel in capture.kernels]\n"
        "    return '\\n'.join(['kernel,ops', *lines, ''])\n"
    )
    copy.write("vmapdbg/page/csv.py", code)
    copy.replace(command, 'ENDINGS = (".html", ".htm")', 'ENDINGS = (".csv", ".html", ".htm")')
    writes = (
        "    if output.suffix == '.csv':\n"
        "        from vmapdbg.page.csv import render_csv\n\n"
        "        write_output(output, render_csv(capture))\n"
        "        return\n"
    )
    page = "    write_report(View.of_one(capture), output"
    copy.replace(command, page, f"{writes}{page}")
    for snippet in ("after.json", SNIPPET):
        copy.run("report", snippet, "-o", "kernels.csv")
        assert re.fullmatch(r"kernel,ops\n(\w+,\d+\n)+", (copy.cwd / "kernels.csv").read_text(encoding="utf-8"))
    done = copy.try_run("report", "after.json", "-o", "missing/kernels.csv")
    assert done.returncode == 2
    assert done.stderr.startswith("vmapdbg: cannot write missing/kernels.csv: ")


@pytest.mark.slow
def test_another_release(copy: Copy) -> None:
    assert_in_table("another tinygrad release", "vmapdbg/child/listen/", "vmapdbg/model/ops.py")
    # a release that renames the op of a buffer
    tree = copy.cwd / "newer"
    shutil.copytree(find_installed(), tree / "tinygrad", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (tree / "tinygrad").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"\bBUFFERIZE\b", "SPOOL", text), encoding="utf-8")
    show = ("show", str(ROOT / "samples" / "softmax.py"), "--tinygrad")
    expected, before = (json.loads(copy.run(*show, name, "--json")) for name in ("0.12.0", "newer"))
    assert before["missing"]
    assert not expected["missing"]
    copy.replace("vmapdbg/model/ops.py", 'STAGE_OPS = ("STAGE",', 'STAGE_OPS = ("SPOOL", "STAGE",')
    after = json.loads(copy.run(*show, "newer", "--json"))
    assert not after["missing"]
    same = json.dumps(after["schedules"]).replace("SPOOL", "BUFFERIZE")
    assert json.loads(same) == expected["schedules"]


def find_installed() -> Path:
    found = find_spec("tinygrad")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@pytest.mark.slow
def test_how_ambient_ranges_propagate(copy: Copy) -> None:
    ambient = "tinygrad/schedule/_ambient.py"
    assert_in_table("how ambient ranges propagate", ambient)
    copy.replace(ambient, "x.ranges if r in scope_ranges", "x.ranges if r in ()")
    shown = copy.run("show", SNIPPET, "--save", "changed.json")
    assert "nodes with ambient ranges" not in shown
    assert "ambient" in copy.run("diff", "changed.json", "after.json", "--all")
    assert "nodes with ambient ranges" in copy.run("show", "after.json")
    assert "wrong" in copy.run("check", SNIPPET, status=1)


def test_every_row_is_tried() -> None:
    """Rows that no test here tries say so."""
    tried = set(re.findall(r'assert_in_table\("([^"]+)"', Path(__file__).read_text(encoding="utf-8")))
    for row, where in rows().items():
        assert row in tried or "not tried" in where, row
