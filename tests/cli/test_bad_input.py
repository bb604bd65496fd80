"""Bad input gets one clear line on stderr and the documented exit code, and nothing is lost or half written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lanes import one_of
from tool import ROOT, is_running, run_command, run_tool, show_json, start_tool, wait_until, write

PLAIN = "from tinygrad import Tensor\nx = Tensor.empty(3) + 1\n"


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert all(word in lines[0] for word in ("vmapdbg:", *words)), lines


def test_syntax_error_shows_the_users_line(tmp_path: Path) -> None:
    done = run_tool("show", write(tmp_path, "x = 1\ny = = 2\n"), cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    assert 'File "snippet.py", line 2' in done.stderr
    assert "SyntaxError" in done.stderr.splitlines()[-1]
    assert "vmapdbg" not in done.stderr


def test_exception_shows_the_snippets_own_traceback(tmp_path: Path) -> None:
    done = run_tool("show", write(tmp_path, "def f():\n  raise ValueError('no [b]good[/b]')\nf()\n"), cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == "ValueError: no [b]good[/b]"
    assert [line.strip() for line in lines if "File" in line] == [
        'File "snippet.py", line 3, in <module>',
        'File "snippet.py", line 2, in f',
    ]


def test_exception_is_in_the_json_with_the_schedules_before_it(tmp_path: Path) -> None:
    name = write(
        tmp_path, "from tinygrad import Tensor\n(Tensor.ones(3)*2).contiguous().realize()\nraise KeyError('k')\n"
    )
    done = run_tool("show", name, "--json", cwd=tmp_path)
    assert done.returncode == 3
    capture = json.loads(done.stdout)
    # tinygrad is not what failed
    assert capture["error"] == {"type": "KeyError", "message": "'k'", "line": "snippet.py:3", "crash": None}
    assert len(capture["schedules"]) == 1


def test_sys_exit_zero_is_not_a_failure(tmp_path: Path) -> None:
    name = write(
        tmp_path, "import sys\nfrom tinygrad import Tensor\nTensor.ones(3).contiguous().realize()\nsys.exit(0)\n"
    )
    done = run_tool("show", name, cwd=tmp_path)
    assert done.returncode == 0
    assert "1 kernel" in done.stdout


ENDS = {
    "import sys\nsys.exit(3)\n": (3, "exited with status 3"),
    "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n": (4, "SIGSEGV"),
    "import os\nos._exit(7)\n": (4, "status 7"),
    "x = 1\n": (0, "made no schedule"),
}


@pytest.mark.parametrize("text", ENDS, ids=[words for _, words in ENDS.values()])
def test_the_end_of_a_snippet_without_a_schedule_is_one_line(text: str, tmp_path: Path) -> None:
    assert_one_line(run_tool("show", write(tmp_path, text), cwd=tmp_path), *ENDS[text])


@pytest.mark.slow
def test_endless_loop_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "worker.pid"
    name = write(
        tmp_path,
        "import subprocess, sys\n"
        "w = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"open({str(marker)!r}, 'w').write(str(w.pid))\n"
        "while True: pass\n",
    )
    # the snippet needs some of the time to reach its loop; the tool must not wait for output that never comes
    imports = "from vmapdbg.commands import cli\nfrom vmapdbg.commands.shared import children\n"
    code = f"{imports}children._LONGEST_REPORT = 3600.0\ncli.main()\n"
    done = run_command(sys.executable, "-c", code, "show", name, "--timeout", "10", cwd=tmp_path)
    assert_one_line(done, 4, "did not end within 10 seconds")
    worker = int(marker.read_text())
    wait_until(lambda: not is_running(worker), "a process that the snippet started is still there")


def test_megabytes_of_output_go_to_the_user_and_not_into_the_json(tmp_path: Path) -> None:
    name = write(tmp_path, "from tinygrad import Tensor\nfor _ in range(40000): print('x'*100)\ny = Tensor.ones(3)+1\n")
    capture, printed = show_json(tmp_path / name, cwd=tmp_path)
    assert capture["error"] is None
    assert printed.count("x" * 100) == 40000


ODD_IMPORTS = [
    "import importlib\nops = importlib.import_module('tinygrad.uop.ops')\n",
    "from tinygrad.schedule.indexing import run_rangeify\n",
    "import tinygrad.codegen.opt.postrange\n",
    "import sys, tinygrad\nfor n in list(sys.modules):\n  if n.split('.')[0] == 'tinygrad': del sys.modules[n]\n",
    "import os\nos.environ['DEBUG'] = '0'\n__import__('tinygrad.nn')\n",
]


@pytest.mark.parametrize("imports", one_of(ODD_IMPORTS, 2))
def test_overlay_is_there_however_tinygrad_is_imported(imports: str, tmp_path: Path) -> None:
    body = (
        "from tinygrad import Tensor, UOp\n"
        "from tinygrad.uop import Ops\n"
        "assert hasattr(Ops, 'VMAPIN')\n"
        "r = UOp.range(3, -1)\n"
        "out = Tensor.ones(3, 2).contiguous().vmapin((r, 0)).sum().vmapout((r,))\n"
    )
    capture, printed = show_json(tmp_path / write(tmp_path, imports + body), cwd=tmp_path)
    assert capture["error"] is None, printed
    assert any(node["op"] == "VMAPOUT" for node in capture["schedules"][-1]["nodes"])
    assert capture["schedules"][-1]["kernels"]


def test_another_tinygrad_on_the_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tinygrad").mkdir()
    (tmp_path / "tinygrad" / "__init__.py").write_text("Tensor = None\n", encoding="utf-8")
    done = run_tool("show", write(tmp_path, "from tinygrad import Tensor\n"), cwd=tmp_path)
    assert_one_line(done, 2, "would be imported as tinygrad, and is none: it has no tensor.py")


def test_wrong_tinygrad_version_is_one_line(tmp_path: Path) -> None:
    """Metadata of a later release, found before the installed package, means that release."""
    info = tmp_path / "site" / "tinygrad-0.13.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tinygrad\nVersion: 0.13.0\n", encoding="utf-8")
    name = write(tmp_path, "from tinygrad import Tensor\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    done = run_tool("show", name, cwd=tmp_path, PYTHONPATH=path)
    assert_one_line(done, 2, "tinygrad 0.13.0 is installed, but vmapdbg patches 0.12.0")


# a tinygrad that calls itself 0.12.0 and is another: `change` gets a module right after it has run
OTHER_SHAPE = """
import sys
from importlib.machinery import PathFinder
NAME = {module!r}
def change(module): {change}
class Finder:
    def find_spec(name, path, target=None):
        if name != NAME: return None
        spec = PathFinder.find_spec(name, path, target)
        run, read = spec.loader.exec_module, spec.loader.get_data
        def exec_module(module):
            run(module)
            if not hasattr(module, "is_changed"): change(module)
        # the tool compiles some modules itself: these get the change as source
        source = "\\nimport sys\\nmodule, is_changed = sys.modules[__name__], True\\n" + {change!r}
        spec.loader.exec_module = exec_module
        spec.loader.get_data = lambda path: read(path) + (source.encode() if path.endswith(".py") else b"")
        return spec
sys.meta_path.insert(1, Finder)
from tinygrad import Tensor
print((Tensor.empty(3) + 1).realize())
"""


@pytest.mark.parametrize(
    ("command", "module", "change", "words"),
    [
        ("show", "tinygrad.engine.schedule", "module.create_schedule = lambda sink, more: 1", "(sched_sink), found"),
        ("show", "tinygrad.tensor", "del module.Tensor.clone", "Tensor.clone is not what tinygrad 0.12.0 has there"),
        ("show", "tinygrad.schedule.rangeify", "module.add_tags.patterns.clear()", "a rule that calls tag_uop"),
        ("show", "tinygrad.schedule.indexing", "del module.apply_movement_op", "'apply_movement_op'"),
        ("check", "tinygrad.engine.realize", "module.ExecItem.run = 1", "tinygrad.engine.realize.ExecItem.run"),
        ("check", "tinygrad.engine.jit", "del module.CapturedJit.__call__", "CapturedJit.__call__ is not what"),
    ],
)
def test_tinygrad_of_another_shape_is_one_line(
    command: str, module: str, change: str, words: str, tmp_path: Path
) -> None:
    """What the overlay replaces, and what observes: neither goes on with half of it."""
    name = write(tmp_path, OTHER_SHAPE.format(module=module, change=change))
    assert_one_line(run_tool(command, name, cwd=tmp_path), 2, words)


def test_a_missing_device_is_an_error_of_the_snippet(tmp_path: Path) -> None:
    name = write(tmp_path, "from tinygrad import Tensor\n(Tensor([1.0], device='METAL')+1).realize()\n")
    done = run_tool("show", name, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("Traceback")
    assert "capture/child" not in done.stderr


def test_a_read_only_folder_does_not_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be", encoding="utf-8")
    name = write(tmp_path, PLAIN)
    assert run_tool("show", name, cwd=tmp_path, XDG_STATE_HOME="state").returncode == 0


def test_a_compiler_beside_the_interpreter_is_found(tmp_path: Path) -> None:
    """Editors and hooks call the tool by its path."""
    if not (Path(sys.executable).parent / "clang").exists():
        pytest.skip("the venv has no clang")
    name = write(tmp_path, "from tinygrad import Tensor\nTensor.ones(3).contiguous().realize()\n")
    done = run_tool("show", name, cwd=tmp_path, PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_remembered_job_in_the_working_directory_is_not_used(tmp_path: Path) -> None:
    """A clone can contain one: it names an interpreter, which would run."""
    (tmp_path / ".vmapdbg").mkdir()
    (tmp_path / ".vmapdbg" / "last.json").write_text('{"snippet": "a.py", "python": "./evil.sh"}', encoding="utf-8")
    evil = tmp_path / "evil.sh"
    evil.write_text("#!/bin/sh\ntouch ran\n", encoding="utf-8")
    evil.chmod(0o755)
    done = run_tool("why", cwd=tmp_path)
    assert done.returncode == 2
    assert "none is remembered here" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("options", [("show", "--time", "--memory"), ("check",)])
def test_a_module_next_to_the_snippet_is_only_the_snippets(options: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("json", "statistics", "graphviz"):
        (tmp_path / f"{name}.py").write_text("x = 1\n", encoding="utf-8")
    name = write(
        tmp_path, "import statistics, difflib\nfrom tinygrad import Tensor\nTensor.ones(9).contiguous().realize()\n"
    )
    done = run_tool(*options, name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["show", "check"])
def test_modules_of_the_working_directory_do_not_run(command: str, tmp_path: Path) -> None:
    """`python ../ok.py` does not import them either."""
    (tmp_path / "q").mkdir()
    for name in ("json", "dataclasses", "numpy", "vmapdbg", "msgspec"):
        (tmp_path / "q" / f"{name}.py").write_text(f"raise SystemExit('UNASKED {name}')\n", encoding="utf-8")
    write(tmp_path, PLAIN)
    done = run_tool(command, "../snippet.py", cwd=tmp_path / "q")
    assert (done.returncode, "UNASKED" in done.stdout + done.stderr) == (0, False), done.stderr


def run_redirected(redirection: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the tool as a shell does with, say, `>&-`."""
    tool = (sys.executable, "-m", "vmapdbg")
    return run_command("sh", "-c", f'exec "$@" {redirection}', "sh", *tool, *arguments, cwd=cwd)


@pytest.mark.parametrize(
    ("stdout", "why"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")], ids=["full", "closed"]
)
def test_a_closed_stdout_gives_no_traceback(stdout: str, why: str, tmp_path: Path) -> None:
    name = write(tmp_path, PLAIN)
    done = run_redirected(stdout, "show", name, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"vmapdbg: cannot write to stdout: {why}\n"


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"], ids=["full", "closed"])
def test_a_stderr_that_takes_nothing_loses_no_report(stderr: str, tmp_path: Path) -> None:
    name = write(tmp_path, PLAIN)
    done = run_redirected(stderr, "show", name, "--save", "x.json", cwd=tmp_path)
    assert done.returncode == 0
    assert "1 schedule, 1 kernel" in done.stdout


@pytest.mark.parametrize("gone", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_snippet_may_do_without_its_stdout(gone: str, tmp_path: Path) -> None:
    name = write(tmp_path, f"import sys\n{gone}\n{PLAIN}")
    done = run_tool("show", name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 schedule, 1 kernel" in done.stdout


def test_two_sides_that_fail_at_once_are_not_called_the_same(tmp_path: Path) -> None:
    done = run_tool("diff", write(tmp_path, "1 / 0\n"), "--baseline", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.startswith("nothing to compare: RAISED ZeroDivisionError before, RAISED")
    assert "no change" not in done.stdout


def test_lint_without_kernels_does_not_claim_no_findings(tmp_path: Path) -> None:
    done = run_tool("lint", write(tmp_path, "x = 1\n"), cwd=tmp_path)
    assert "no kernels to check: the snippet created no schedule" in done.stdout
    assert "no finding" not in done.stdout


def test_the_child_ends_with_a_tool_that_was_killed(tmp_path: Path) -> None:
    text = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nos.rename('pid', 'started')\ntime.sleep(600)\n"
    write(tmp_path, text)
    tool = start_tool("show", "snippet.py", cwd=tmp_path)
    wait_until((tmp_path / "started").exists, "the snippet never started")
    child = int((tmp_path / "started").read_text())
    tool.kill()
    tool.wait()
    wait_until(lambda: not is_running(child), "the child outlived the tool")


def test_the_remembered_job_is_printed_with_its_options(tmp_path: Path) -> None:
    name = write(tmp_path, PLAIN)
    run_tool("show", name, "--patches", "none", "--target", "metal", cwd=tmp_path)
    told = run_tool("why", cwd=tmp_path).stderr
    assert told == "vmapdbg: using snippet.py, from the last show with --patches none --target metal\n"


def test_a_node_number_of_several_schedules_names_them(tmp_path: Path) -> None:
    text = "from tinygrad import Tensor\n(Tensor.empty(3) + 1).realize()\nx = Tensor.empty(4) + 1\n"
    run = run_tool("why", "1", write(tmp_path, text), cwd=tmp_path)
    assert "node 1 of schedule 1; schedule 0 has one, too (--schedule)" in run.stderr


def test_the_report_is_shown_though_it_cannot_be_saved(tmp_path: Path) -> None:
    name = write(tmp_path, "from tinygrad import Tensor\nimport os\nx = Tensor.empty(3) + 1\nos.rmdir('out')\n")
    (tmp_path / "out").mkdir()
    done = run_tool("show", name, "--save", "out/run.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "1 schedule, 1 kernel" in done.stdout
    assert done.stderr == "vmapdbg: cannot write out/run.json: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("snippet.py",), "snippet.py is no command: did you mean vmapdbg show snippet.py?"),
        (("check", "run.json"), "run.json is a saved capture: this command runs a snippet"),
        (("bisect", "run.json"), "run.json is a saved capture: this command runs a snippet"),
        (("show", "snippet.py", "--save", "-"), "cannot write -: a file has another name"),
        (("show", "snippet.py", "--tinygrad", ""), "Invalid value for '--tinygrad': it is empty"),
        (("show", "snippet.py", "--python", ""), "Invalid value for '--python': it is empty"),
        (("show", ""), "Invalid value for '[SNIPPET]': it is empty"),
        (("graph", "snippet.py", "-o", "a" * 253 + ".svg"), "File name too long"),
        (("show", "run.json"), "run.json is not a vmapdbg capture: capture.findings.0.schedule: there is no"),
        (("schema",), "Missing argument"),
        (("show", "evil.json", "--kernel", "zz"), r"there is no kernel zz: \x1b[31mred"),
        (("show", "evil.json", "--schedule", "99"), "there is no schedule 99"),
        (("why", "zz", "evil.json"), ""),
    ],
)
def test_bad_input_ends_with_one_line(arguments: tuple[str, ...], said: str, saved: Path) -> None:
    done = run_tool(*arguments, cwd=saved)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr
    assert sorted(file.name for file in saved.iterdir()) == ["evil.json", "run.json", "snippet.py"]


@pytest.fixture(scope="module")
def plain_capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plain")
    return run_tool("show", write(folder, PLAIN), "--json", cwd=folder).stdout


@pytest.fixture
def saved(tmp_path: Path, plain_capture: str) -> Path:
    """A folder with a snippet, a capture whose finding is about no schedule, and a capture with escapes."""
    write(tmp_path, PLAIN)
    capture = json.loads(plain_capture)
    finding = {"code": "VD101", "kernel": None, "node": None, "line": None, "message": "m", "schedule": 7}
    (tmp_path / "run.json").write_text(json.dumps({**capture, "findings": [finding]}), encoding="utf-8")
    capture["schedules"][0]["kernels"][0]["name"] = "\x1b[31mred"
    (tmp_path / "evil.json").write_text(json.dumps(capture), encoding="utf-8")
    return tmp_path


def test_a_run_that_failed_is_not_remembered(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "good.py")
    write(tmp_path, "raise ValueError", "bad.py")
    assert run_tool("show", "good.py", cwd=tmp_path).returncode == 0
    assert run_tool("show", "bad.py", cwd=tmp_path).returncode == 3
    assert "using good.py, from the last show" in run_tool("why", cwd=tmp_path).stderr


@pytest.mark.parametrize("delay", [0.03, 0.06, 0.1, 0.15, 0.25, 0.4])
def test_an_interrupt_during_the_start(delay: float, tmp_path: Path) -> None:
    name = write(tmp_path, PLAIN)
    # a test run in the background ignores SIGINT, and what it starts does
    code = "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "print(end='.', flush=True); sys.argv = ['vmapdbg', 'show', sys.argv[1]]; "
    code += "runpy.run_module('vmapdbg', run_name='__main__')"
    command = [sys.executable, "-P", "-c", code, name]
    tool = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert tool.stdout is not None
    # Python itself has started
    tool.stdout.read(1)
    time.sleep(delay)
    tool.send_signal(signal.SIGINT)
    _, stderr = tool.communicate(timeout=60)
    assert tool.returncode == 130
    assert "Traceback" not in stderr
