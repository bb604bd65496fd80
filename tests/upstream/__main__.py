"""`python -m tests.upstream`: fetch, run both sides, compare, print.

Exit code 0: alike; 1: not alike; 2: it could not be run.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.upstream import check, fusion
from tests.upstream.compare import SCHEDULES, Difference, SideResult, TestResult, find_differences
from tests.upstream.fetch import FetchError, fetch_upstream
from tests.upstream.sides import Bench, RunError, Side
from vmapdbg.install.overlay import TINYGRAD_VERSION
from vmapdbg.install.targets import TARGETS
from vmapdbg.install.trees import TreeError
from vmapdbg.lint import RULES

ROOT = Path(__file__).parents[2]
CACHE_DIR = ROOT / ".cache" / "upstream"
FILES = ["test_schedule.py", "test_rangeify.py", "test_outerworld.py", "test_softmax_fusion.py", "test_ops.py"]
# the patches of fusion are there to change the kernels of ordinary programs: --fusion looks at that
VMAP_PATCHES = "ambient-ranges,nested-ranges,close-ranges"
FAULT_CODES = [rule.code for rule in RULES if rule.severity == "error"]
# faults of stock that upstream's own tests have and do not look for, (code, line) -> times: a value that is masked out
# altogether is a constant with the memory of the input, which is set to zero (tests/found: masked_out_overwrites)
TRUE_FAULTS = {
    ("VD110", "test/test_schedule.py:1961"): 1,
    ("VD110", "test/test_schedule.py:1970"): 1,
    ("VD110", "test/test_ops.py:57"): 1,
}
BROKEN = ("failed", "error", "crashed")
NEEDS_TORCH = {"test_ops.py"}
# more than this is no flake
MOST_RERUN = 40
# upstream tests kernels that nothing can render; many mean that lint looks at nothing
MOST_UNLINTED = 0.01
# a few tests of stock fail without a network or torch; many mean that nothing runs at all, on neither side
MOST_STOCK_FAILURES = 0.15


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    # what `timeout` sends: pytest runs in a session of its own, and is ended on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    try:
        if options.check:
            return check.check_tests(CACHE_DIR, options.tinygrad, options.patches, options.files, options.workers)
        options.files = options.files or FILES
        return compare_fusion(options) if options.fusion else compare_sides(options)
    except (FetchError, RunError, TreeError, fusion.TableError) as error:
        print(f"tests.upstream: {error}", file=sys.stderr)
        return 2


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    add = parser.add_argument
    add("--files", nargs="+", default=(), metavar="FILE", help="files of upstream's test folder")
    add("-n", dest="workers", type=int, default=2, help="pytest-xdist workers (default 2)")
    add("--fusion", action="store_true", help="compare what fuse-broadcast changes with fewer_kernels.toml")
    add("--write", action="store_true", help="with --fusion: write fewer_kernels.toml anew")
    add("--lint", action="store_true", help="lint each kernel of the overlay side; a fault that it finds is a failure")
    add("--target", choices=TARGETS, default="c", help="with --lint: what kernels are rendered for (default c)")
    add("--shard", default="1/1", help="part i of n of the tests, such as 2/3")
    add("--check", action="store_true", help="compare what the tests of --files realize with numpy; fail for a finding")
    add("--tinygrad", default=TINYGRAD_VERSION, metavar="PATH@REV", help="with --check: a commit with its own tests")
    add("--patches", default="none", help="with --check: the patches (default none)")
    return parser.parse_args(arguments)


def compare_sides(options: argparse.Namespace) -> int:
    bench, files, stock = run_stock_side(options, options.files)
    side = Side("overlay", VMAP_PATCHES)
    findings = CACHE_DIR / "findings.json" if options.lint else None
    overlay = run_overlay_side(bench, replace(side, lint=findings, target=options.target), files)
    false_findings = 0 if findings is None else print_findings(findings, options.target)
    stock, overlay = rerun_differing(bench, side, stock, overlay)
    differences = find_differences(stock, overlay)
    print_differences(differences, stock, overlay)
    return 1 if differences or false_findings else 0


def run_stock_side(options: argparse.Namespace, wanted: Sequence[str]) -> tuple[Bench, list[str], SideResult]:
    """Returns the bench, the wanted files that can run, and stock's outcome of them."""
    upstream = fetch_upstream(CACHE_DIR, TINYGRAD_VERSION)
    files = choose_files(wanted, upstream)
    bench = Bench(upstream, CACHE_DIR, options.workers, options.shard)
    stock = run_stock(bench, [f"test/{file}" for file in files])
    print_side("stock", stock)
    check_stock(stock)
    return bench, files, stock


def run_overlay_side(bench: Bench, side: Side, files: Sequence[str]) -> SideResult:
    result = bench.run(side, [f"test/{file}" for file in files])
    print_side(f"overlay (patches {side.patches})", result)
    return result


def print_findings(file: Path, target: str) -> int:
    """Prints what lint found in upstream's kernels, and returns how many faults it claims. Upstream's tests pass, so
    these are false, except TRUE_FAULTS. What is only slow may be true."""
    linted = json.loads(file.read_text())
    counts = Counter(finding["code"] for finding in linted["findings"])
    faults = [finding for finding in linted["findings"] if finding["code"] in FAULT_CODES]
    claimed = list(drop_true(faults))
    for finding in claimed:
        print(f"FALSE FINDING {finding['code']} {finding['line']}: {finding['message']}")
    told = ", ".join(f"{count} {code}" for code, count in sorted(counts.items())) or "none"
    failed = sum(linted["failed"].values())
    print(
        f"lint for {target}: {linted['kernels']} kernels of {linted['schedules']} schedules, {len(claimed)} false "
        f"findings; not told: an address of {linted['undecided']} kernels, {failed} schedules; findings: {told}",
        flush=True,
    )
    if not linted["kernels"] or failed > MOST_UNLINTED * linted["schedules"]:
        raise RunError(f"lint looked at {linted['kernels']} kernels, and could not at {failed} schedules")
    return len(claimed)


def drop_true(faults: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the findings that are not known to be true."""
    known = Counter(TRUE_FAULTS)
    for finding in faults:
        place = finding["code"], finding["line"]
        if known[place] > 0:
            known[place] -= 1
        else:
            yield finding


def compare_fusion(options: argparse.Namespace) -> int:
    """`--fusion`: what fuse-broadcast changes is what fewer_kernels.toml lists."""
    table = Path(__file__).parent / "fewer_kernels.toml"
    bench, files, stock = run_stock_side(options, [fusion.COUNTS, fusion.VALUES])
    fused = run_overlay_side(bench, Side("fusion", fusion.PATCHES), files)
    counts, others = fusion.find_counts(stock, fused)
    if options.write:
        table.write_text(fusion.format_counts(counts))
    listed = [entry for entry in fusion.read_counts(table) if options.shard == "1/1" or entry.test in fused.tests]
    wrong = fusion.compare_counts(counts, listed)
    for line in wrong:
        print("DIFFERENT", line)
    for difference in others:
        print_difference(difference)
    print(f"{len(counts)} tests of {fusion.COUNTS} have other kernels, none of them more than stock")
    print(f"tests.upstream --fusion: {len(wrong) + len(others)} differences that are not listed")
    return 1 if wrong or others else 0


def choose_files(wanted: Sequence[str], upstream: Path) -> list[str]:
    """Returns the wanted files of upstream's tests, without the files that need torch if it is not installed. Raises
    RunError if a file does not exist, or if no file is left."""
    names = [name.removeprefix("test/") for name in wanted]
    for name in names:
        if not (upstream / "test" / name).is_file():
            raise RunError(f"upstream has no test/{name}")
    if importlib.util.find_spec("torch") is not None:
        return names
    for name in sorted(NEEDS_TORCH.intersection(names)):
        print(f"{name} skipped: torch is not installed (pip install vmapdbg[upstream])")
    chosen = [name for name in names if name not in NEEDS_TORCH]
    if not chosen:
        raise RunError("nothing is left to run")
    return chosen


def run_stock(bench: Bench, paths: list[str]) -> SideResult:
    """Returns stock's outcome, of each file from the cache if nothing changed that can change it."""
    kept = {path: bench.stock_cache_file([path]) for path in paths}
    missing = [path for path, file in kept.items() if not file.is_file()]
    for path in paths:
        if path not in missing:
            print(f"stock: outcome of an earlier run of {path} ({kept[path].relative_to(ROOT)})")
    if missing:
        result = bench.run(Side("stock", None), missing)
        for path in missing:
            tests = {name: test for name, test in result.tests.items() if name.startswith(f"{path}::")}
            # the time of one file among several is not known
            write_stock(kept[path], SideResult(tests, result.seconds / len(missing)))
    results = [SideResult.from_json(json.loads(kept[path].read_text())) for path in paths]
    return functools.reduce(SideResult.joined, results)


def write_stock(file: Path, result: SideResult) -> None:
    partial = file.with_suffix(f".{os.getpid()}.tmp")
    partial.write_text(json.dumps(result.to_json()))
    partial.replace(file)


def check_stock(stock: SideResult) -> None:
    counts = stock.count_outcomes()
    bad = sum(counts[outcome] for outcome in BROKEN)
    if stock.tests and bad <= MOST_STOCK_FAILURES * len(stock.tests):
        return
    messages = Counter(test.message for test in stock.tests.values() if test.outcome in BROKEN)
    common = "".join(f"; most often: {message}" for message, _ in messages.most_common(1))
    raise RunError(f"stock itself fails {bad} of {len(stock.tests)} tests, nothing to compare with{common}")


def rerun_differing(bench: Bench, side: Side, stock: SideResult, overlay: SideResult) -> tuple[SideResult, SideResult]:
    """Runs each test that differs once more on both sides, in one process and without the others."""
    differing = sorted({difference.test for difference in find_differences(stock, overlay)})
    if not differing or len(differing) > MOST_RERUN:
        return stock, overlay
    print(f"{len(differing)} tests differ, running them alone on both sides:")
    again_stock = run_alone(bench, Side("stock", None), stock, differing)
    again_overlay = run_alone(bench, side, overlay, differing)
    still = {difference.test for difference in find_differences(again_stock, again_overlay)}
    for test in differing:
        print(f"  {test}: {'differs again' if test in still else 'alike now'}")
    return stock.replaced(again_stock.tests), overlay.replaced(again_overlay.tests)


def run_alone(bench: Bench, side: Side, before: SideResult, tests: list[str]) -> SideResult:
    """Returns the results of `tests` run without xdist. One that the side does not have stays missing."""
    present = [test for test in tests if test in before.tests]
    if not present:
        return SideResult({})
    try:
        return replace(bench, shard="1/1").run(Side(f"{side.name}-again", side.patches), present, workers=0)
    except RunError as error:
        # a crash ends the process of all files: the first outcome counts
        print(f"  {str(error).splitlines()[0]}")
        return SideResult({test: before.tests[test] for test in present})


def print_side(title: str, side: SideResult) -> None:
    counts = side.count_outcomes()
    parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    schedules, kernels = sum_schedules(side.tests.values())
    scheduled = f"{schedules} schedules, {kernels} kernels"
    print(f"{title}: {len(side.tests)} tests: {parts}; {scheduled} ({side.seconds:.0f} s)", flush=True)


def sum_schedules(tests: Iterable[TestResult]) -> tuple[int, int]:
    results = list(tests)
    return sum(test.schedules for test in results), sum(test.kernels for test in results)


def print_differences(differences: Sequence[Difference], stock: SideResult, overlay: SideResult) -> None:
    for difference in differences:
        print_difference(difference)
    names = stock.tests.keys() | overlay.tests.keys()
    differing = {difference.test for difference in differences}
    schedules, kernels = sum_schedules(test for name, test in overlay.tests.items() if name not in differing)
    print(f"compared: {len(names)} tests; {schedules} schedules with {kernels} kernels are alike by AST key")
    print(f"tests.upstream: {len(names) - len(differing)} passed, {len(differing)} failed")


def print_difference(difference: Difference) -> None:
    what = "scheduled" if difference.kind == SCHEDULES else "outcome"
    print(f"DIFFERENT {difference.test}: {what}: stock {difference.stock}, overlay {difference.overlay}")
    for line in difference.message.splitlines():
        print(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
