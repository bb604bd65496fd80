"""All cases of the table: `python -m tests.overlay.func_ops [--shard i/n] [WORD...]` from the root of the checkout.

Prints each case that is wrong. Exit status 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
import time

from vmapdbg.install.overlay import install
from vmapdbg.install.patches import format_patches, parse_patches

install(format_patches(parse_patches("all")))

from tinygrad import Device  # noqa: E402

from .cases import Case, Run, all_cases  # noqa: E402
from .table import OPS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", default="1/1", help="part i of n, such as 2/3")
    parser.add_argument("words", nargs="*", help="cases whose name has one of these in it")
    options = parser.parse_args()
    i, n = map(int, options.shard.split("/"))
    cases = [case for op in OPS.values() for case in all_cases(op)][i - 1 :: n]
    cases = [case for case in cases if not options.words or any(word in str(case) for word in options.words)]
    Device.DEFAULT = "PYTHON"
    start, bad = time.monotonic(), 0
    for count, case in enumerate(cases, 1):
        wrong = outcome(case)
        if wrong is not None:
            bad += 1
            print(f"{case}\n  {wrong}", flush=True)
        if count % 500 == 0:
            print(f"{count}/{len(cases)} cases, {bad} wrong, {time.monotonic() - start:.0f} s", flush=True)
    took = time.monotonic() - start
    print(f"{len(cases)} cases of {len(OPS)} ops, {bad} wrong, {took:.0f} s")
    return 1 if bad else 0


def outcome(case: Case) -> str | None:
    try:
        Run(case).check()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {' '.join(lines[:8])[:400]}"
    return None


sys.exit(main())
