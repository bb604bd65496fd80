"""One run of upstream's tests, on stock tinygrad or on the overlay."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.upstream.compare import SideResult, TestResult
from vmapdbg.install.overlay import child_environment
from vmapdbg.install.patches import format_patches, parse_patches

PLUGIN_DIR = Path(__file__).parent / "plugin"
PLUGIN_NAME = "vmapdbg_upstream_plugin"
SHARD_PLUGIN = "vmapdbg_shard"
# for one side
MOST_SECONDS = 1200
# settings of tinygrad and pytest that a user may have set, and that change what the tests do
REMOVED_VARIABLES = {
    *("BEAM", "CPU", "CPU_LLVM", "DEBUG", "FUSE_OPTIM", "IMAGE", "JIT", "NOOPT", "NULL", "PCONTIG", "PYTHON"),
    *("SPEC", "SPLIT_REDUCEOP", "TRACEMETA", "VIZ"),
    *("CI", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_WORKER"),
}


class RunError(Exception):
    """A side could not be run to its end; the message is for the user."""


@dataclass(frozen=True)
class Side:
    """`patches` is a `--patches` value, or None for stock tinygrad. With `lint` each kernel is linted as it is rendered
    for the `target`, and the findings go to that file."""

    name: str
    patches: str | None
    lint: Path | None = None
    target: str = "c"

    def command(self) -> list[str]:
        if self.patches is None:
            return [sys.executable, "-m", "pytest"]
        lint = [] if self.lint is None else ["--target", self.target, "--lint-output", str(self.lint)]
        return [sys.executable, "-m", "vmapdbg", "run", "--patches", self.patches, *lint, "-m", "pytest"]

    def expected_worker(self) -> tuple[bool, str | None]:
        """Returns what a worker of this side must report: is the overlay there, and with which patches."""
        if self.patches is None:
            return False, None
        return True, format_patches(parse_patches(self.patches))


@dataclass(frozen=True)
class Bench:
    """What both sides share: where upstream's tests are, where the cache is, how many workers run, and which `shard` of
    the tests, such as 2/3."""

    upstream: Path
    cache_dir: Path
    workers: int
    shard: str = "1/1"

    def run(self, side: Side, tests: Sequence[str], workers: int | None = None) -> SideResult:
        """Runs `tests` (files or test ids) on `side`, the output goes to a log file. Raises RunError."""
        workers = self.workers if workers is None else workers
        with tempfile.TemporaryDirectory(dir=self.cache_dir, prefix="report-") as report:
            started = time.monotonic()
            code = self.run_pytest(side, tests, workers, Path(report))
            seconds = time.monotonic() - started
            log = self.log_file(side)
            # 0: all passed, 1: some failed; 2 to 5: interrupted, internal error, usage, nothing collected
            if code not in (0, 1) or not (Path(report) / "outcomes.json").is_file():
                raise RunError(f"{side.name}: pytest ended with exit code {code}, see {log}\n{read_tail(log)}")
            check_workers(side, Path(report), max(1, workers))
            return SideResult(read_report(Path(report)), seconds)

    def log_file(self, side: Side) -> Path:
        return self.cache_dir / f"{side.name}.log"

    def run_pytest(self, side: Side, tests: Sequence[str], workers: int, report: Path) -> int:
        options = ["-q", "-n", str(workers), "-p", PLUGIN_NAME, "-p", "no:cacheprovider", "--tb=short"]
        options += ["--rootdir", str(self.upstream), "-c", str(self.upstream / "pytest.ini")]
        options += ["-p", SHARD_PLUGIN, "--shard", self.shard]
        # the same random examples on both sides
        options += ["--hypothesis-seed=0"]
        with self.log_file(side).open("wb") as log:
            process = subprocess.Popen(
                [*side.command(), *options, *tests],
                cwd=self.upstream,
                env=self.environment(report),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(MOST_SECONDS)
            except subprocess.TimeoutExpired:
                raise RunError(f"{side.name}: still running after {MOST_SECONDS} s") from None
            finally:
                end_session(process)

    def environment(self, report: Path) -> dict[str, str]:
        """Returns the environment of stock; `vmapdbg run` adds the overlay to it."""
        return make_environment(self.cache_dir, PLUGIN_DIR) | {
            "HYPOTHESIS_STORAGE_DIRECTORY": str(report / "hypothesis"),
            "VMAPDBG_UPSTREAM_REPORT": str(report),
        }

    def stock_cache_file(self, tests: Sequence[str]) -> Path:
        """Returns where stock's result is kept: one file for each set of things that can change it."""
        return self.cache_dir / f"stock-{hash_conditions(self.upstream, tests, self.shard)}.json"


def make_environment(cache_dir: Path, imports: Path) -> dict[str, str]:
    """Returns the environment of a run of upstream's tests on stock, which import from the folder `imports`."""
    environment = child_environment(None, dict(os.environ))
    for name in REMOVED_VARIABLES:
        environment.pop(name, None)
    paths = [str(imports), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment.update(
        PYTHONPATH=os.pathsep.join(path for path in paths if path),
        PATH=search_path(),
        DEV="CPU",
        # compiled kernels of both sides, nothing of the user's: equal source is compiled once
        CACHEDB=str(cache_dir / "kernels.db"),
    )
    return environment


def search_path() -> str:
    """Returns PATH with the environment's own programs first: clang may come from a package."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of a run: xdist workers outlive a killed pytest."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def read_tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def read_workers(report: Path) -> list[list[dict[str, Any]]]:
    files = sorted(report.glob("worker-*.jsonl"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def check_workers(side: Side, report: Path, expected: int) -> None:
    """Raises RunError unless every process that ran tests ran on what the side is about.

    Without this proof an overlay that never reached the workers would compare stock with stock, and pass.
    """
    starts = [line for lines in read_workers(report) for line in lines if "overlay" in line]
    if len(starts) < expected:
        raise RunError(f"{side.name}: {len(starts)} of {expected} workers said what they run on")
    for start in starts:
        if (start["overlay"], start["patches"]) != side.expected_worker():
            raise RunError(
                f"{side.name}: a worker ran with overlay={start['overlay']} patches={start['patches']},"
                f" expected {side.expected_worker()} (tinygrad at {start['tinygrad']})"
            )


def read_report(report: Path) -> dict[str, TestResult]:
    """Returns test id -> result, from what the plugin wrote."""
    recorded = {line["test"]: line for lines in read_workers(report) for line in lines if "test" in line}
    outcomes: dict[str, list[str]] = json.loads((report / "outcomes.json").read_text())
    results = {}
    for test, (outcome, message) in outcomes.items():
        schedules = recorded.get(test)
        if schedules is None:
            results[test] = TestResult(outcome, message)
        else:
            counts = schedules["schedules"], schedules["kernels"], schedules["digest"]
            results[test] = TestResult(outcome, message, *counts)
    return results


def hash_conditions(upstream: Path, tests: Sequence[str], shard: str) -> str:
    versions = {}
    for name in ("tinygrad", "torch", "numpy", "pytest", "hypothesis"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    compiler = shutil.which("clang", path=search_path())
    asked = [compiler or "", os.environ.get("CC", "")]
    if compiler is not None:
        asked.append(subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout)
    plugins = [PLUGIN_DIR / f"{name}.py" for name in (PLUGIN_NAME, SHARD_PLUGIN)]
    sources = [*plugins, Path(__file__), *(upstream / test for test in tests)]
    digest = hashlib.sha256()
    for part in (sys.version, platform.platform(), platform.processor(), versions, asked, list(tests), shard):
        digest.update(json.dumps(part).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
