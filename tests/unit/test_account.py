"""What a run did is compared with what was compared: only without a rest the tool says that all is right."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from vmapdbg.model.account import OTHER, UNKNOWN, Account, Left, add_accounts, settle
from vmapdbg.page.claims import CHECKED, claim, say_left

PACKAGE = Path(__file__).parent.parent.parent / "vmapdbg"
CLAIMS = re.compile(r"all right|no findings?\b|right after every pass|nothing to run|values equal|no change\b")


def test_a_balanced_account_says_that_all_is_right() -> None:
    account = settle({"outputs": 13, "replays": 0}, {"outputs": 13}, [])
    assert claim(CHECKED, account)[0] + say_left(CHECKED, account.left) == "13 outputs, all right"
    failed = claim(CHECKED, account, "until the snippet failed")[0]
    assert failed == "13 outputs compared, none wrong, until the snippet failed"


def test_what_is_left_over_comes_with_its_reasons_and_numbers() -> None:
    reasons = [Left("replays", 3, "a variable has a new value"), Left("outputs", 9, "too large", 4)]
    account = settle({"outputs": 20, "replays": 4}, {"outputs": 16}, reasons)
    # no more than there was, and what no reason is about is left over all the same
    assert account.left == (
        Left("replays", 3, "a variable has a new value"),
        Left("outputs", 4, "too large"),
        Left("replays", 1, UNKNOWN),
    )
    text = claim(CHECKED, account)[0] + say_left(CHECKED, account.left)
    assert text == (
        "16 of 20 outputs, 0 of 4 replays compared, none wrong; 8 not compared: 4 outputs (too large), "
        f"3 replays (a variable has a new value), 1 replay ({UNKNOWN})"
    )


@pytest.mark.parametrize("account", [Account(), settle({"outputs": 0}, {}, []), settle({"outputs": 2}, {}, [])])
def test_without_counts_nothing_is_claimed(account: Account) -> None:
    assert claim(CHECKED, account)[0] == "nothing was compared"


@pytest.mark.parametrize(("rest", "reason"), [(UNKNOWN, OTHER), ("the run was stopped", "the run was stopped")])
def test_launches_of_other_schedules_have_a_reason(rest: str, reason: str) -> None:
    account = settle({"other launches": 2, "outputs": 1}, {"outputs": 1}, [], rest)
    assert account.left == (Left("other launches", 2, reason),)


def test_accounts_of_parts_add_up() -> None:
    part = settle({"outputs": 2}, {"outputs": 1}, [Left("outputs", 1, "no room")])
    assert add_accounts([part, part]) == Account({"outputs": 4}, {"outputs": 2}, (Left("outputs", 2, "no room"),))


def list_strings(file: Path) -> list[str]:
    """Returns the strings of a file that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [str(node.value) for node in strings if id(node) not in docs]


def test_only_one_module_claims_that_all_is_right() -> None:
    found = {file.name for file in PACKAGE.rglob("*.py") if any(map(CLAIMS.search, list_strings(file)))}
    assert found == {"claims.py"}
