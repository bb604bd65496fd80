"""What `vmapdbg run --check` says about upstream's own tests: `python -m tests.upstream --check`.

Upstream's tests pass, so a finding counts as false until it is proved. TRUE_FINDINGS lists the proved findings. Others
are proved if they are gone when the file runs again and realizes each draw of random numbers at once.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.upstream.fetch import fetch_commit, fetch_upstream
from tests.upstream.sides import MOST_SECONDS, PLUGIN_DIR, RunError, end_session, make_environment, read_tail
from vmapdbg.install.overlay import TINYGRAD_VERSION
from vmapdbg.install.trees import TreeName, commit_of, parse_name, repository_of

STEMS = ("assign", "jit", "multitensor", "nn", "optim", "setitem", "symbolic_ops")
_OVERWRITTEN = "0.12.0 reads rows 6 and 7 of a sharded tensor, and its rows 0 and 1 have these values then"
_SAYS_SO = "the test itself says that this is wrong"
_AFTER_STEP = "the loss is computed after the step of the optimizer, and reads the new weights"
_LATE_DRAW = (
    "gone if each draw of random numbers is realized at once: a draw that waits gets the numbers of another one"
)
DRAWS_PLUGIN = "vmapdbg_realize_draws"
# its code, and the test without its folder
Finding = tuple[str, str]
# proved: why
TRUE_FINDINGS: dict[Finding, str] = {
    ("VD208", "test_multitensor.py::TestShrinkMultiTensorShardedAxis::test_ops"): _OVERWRITTEN,
    ("VD208", "test_multitensor.py::TestShrinkMultiTensorShardedAxis::test_add_two_partitions"): _OVERWRITTEN,
    ("VD209", "test_assign.py::TestAssignOrdering::test_war_reader_already_depends_on_write"): (
        "it is 16, and the test itself says that it should be 15"
    ),
    ("VD209", "test_assign.py::TestAssignOrdering::test_write_read_write_chain"): _SAYS_SO,
    ("VD209", "test_setitem.py::TestSetitem::test_cross_assign_independence"): _SAYS_SO,
    ("VD209", "test_setitem.py::TestSetitem::test_lazy_sum_between_writes"): _SAYS_SO,
    ("VD209", "test_optim.py::TestOptim::test_duped_weights"): _AFTER_STEP,
}
LOG = "check.log"
COUNTED = ("schedules", "compared", "replays", "replays_compared", "values")


@dataclass(frozen=True)
class Account:
    """What one file, or all of them, did: COUNTED of the document, and what was left out, by reason."""

    counts: Counter[str] = field(default_factory=Counter[str])
    left: Counter[str] = field(default_factory=Counter[str])


def check_tests(cache: Path, tree: str, patches: str, wanted: Sequence[str], workers: int) -> int:
    """Runs upstream's tests under `run --check`, each file alone, and prints their accounts. Returns the exit code:
    1 for a finding that is not proved."""
    folder = fetch_tests(cache, tree)
    options = [f"--tinygrad={tree}", f"--patches={patches}"]
    total, claimed = Account(), 0
    for file in find_tests(folder, wanted):
        document = run_check(cache, folder, file, options, workers)
        if not document["schedules"]:
            raise RunError(f"{file}: no test ran a schedule, see {cache / LOG}\n{read_tail(cache / LOG)}")
        account = Account(Counter({name: document[name] for name in COUNTED}), Counter(document["unchecked"]))
        print_account(file, account)
        proofs = dict(TRUE_FINDINGS)
        if found := list_findings(document) - proofs.keys():
            drawn = run_check(cache, folder, file, options, workers, "-p", DRAWS_PLUGIN)
            proofs |= dict.fromkeys(found - list_findings(drawn), _LATE_DRAW)
        claimed += print_findings(document, proofs)
        total = Account(total.counts + account.counts, total.left + account.left)
    print_account(f"all on {tree}", total)
    for reason, times in total.left.most_common():
        print(f"    left {times}: {reason}")
    print(f"tests.upstream --check: {claimed} findings that are not proved")
    return 1 if claimed else 0


def print_account(name: str, account: Account) -> None:
    counts = account.counts
    print(
        f"{name}: {counts['compared']} of {counts['schedules']} schedules and {counts['replays_compared']} of "
        f"{counts['replays']} replays compared, {counts['values']} values; left: {account.left.total()}",
        flush=True,
    )


def name_finding(finding: dict[str, Any], test: str) -> Finding:
    return finding["code"], test.split("/")[-1]


def list_findings(document: dict[str, Any]) -> set[Finding]:
    found = (*document["findings"], *document["endless"])
    return {name_finding(finding, test) for finding in found for test in finding["tests"]}


def prove_number(finding: dict[str, Any]) -> str | None:
    """Returns the proof of a finding about numbers, None if there is none, or if it is about something else."""
    if finding["code"] == "VD301":
        return "numpy computes the same NaN or infinity"
    return "the test reads what it makes with Tensor.empty" if "(Tensor.empty)" in finding["message"] else None


def print_findings(document: dict[str, Any], known: Mapping[Finding, str]) -> int:
    """Prints the findings with their tests and proofs, and returns how many are not proved."""
    claimed = 0
    for finding in (*document["findings"], *document["endless"], *document["numbers"]):
        proofs = [known.get(name_finding(finding, test)) or prove_number(finding) for test in finding["tests"]]
        claimed += None in proofs
        word = "FINDING" if None in proofs else "true finding"
        print(f"  {word} {finding['code']} {finding['line']}, {finding['times']} times: {finding['message']}")
        for test, proof in zip(finding["tests"], proofs, strict=True):
            print(f"      in {test}" + ("" if proof is None else f": {proof}"))
    return claimed


def fetch_tests(cache: Path, tree: str) -> Path:
    """Returns the folder with `test/`: of the release 0.12.0 from its sdist, which lacks test/helpers.py; of a commit
    (PATH@REV) from the clone."""
    name: TreeName = parse_name(tree)
    if name.revision is None:
        if name.release != TINYGRAD_VERSION:
            raise RunError(f"{tree} has no tests: name a clone of tinygrad, PATH@REV")
        return fetch_upstream(cache, TINYGRAD_VERSION)
    top = repository_of(name.path)
    return fetch_commit(cache, top, commit_of(top, name.revision))


def find_tests(folder: Path, wanted: Sequence[str]) -> list[str]:
    """Returns the files of upstream's tests for CPU that have the wanted names: 0.13 moved them into subfolders."""
    names = wanted or [f"test_{stem}.py" for stem in STEMS]
    places = [folder / "test" / place for place in ("", "unit", "backend")]
    files = [place / name for name in names for place in places if (place / name).is_file()]
    if not files:
        raise RunError(f"{folder} has none of {', '.join(names)}")
    return [str(file.relative_to(folder)) for file in files]


def run_check(
    cache: Path, folder: Path, file: str, options: list[str], workers: int, *pytest_options: str
) -> dict[str, Any]:
    """Returns what `run --check --json` prints about a file of tests. Raises RunError."""
    command = [sys.executable, "-m", "vmapdbg", "run", "--check", "--json", *options, "-m", "pytest", "-q"]
    command += ["-n", str(workers), "-p", "no:cacheprovider", "--tb=short", "--hypothesis-seed=0"]
    command += ["--rootdir", str(folder), "-c", str(folder / "pytest.ini"), *pytest_options, file]
    log, environment = cache / LOG, make_environment(cache, folder)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=folder,
            # test_nn.py and test_optim.py are slow, as a whole
            env=environment | {"RUN_SLOW": "1", "PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{PLUGIN_DIR}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            start_new_session=True,
        )
        try:
            text, _ = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            raise RunError(f"{shlex.join(command)}: still running after {MOST_SECONDS} s") from None
        finally:
            end_session(process)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise RunError(f"{file}: no document, see {log}\n{read_tail(log)}") from None
