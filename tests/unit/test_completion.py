"""Shell completion offers the names that an option takes, those of a comma separated list one after the other."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from vmapdbg.commands.cli import main


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["check", "--oracle"], "", {"numpy", "stock", "python"}),
        (["check", "--oracle"], "stock,p", {"stock,python"}),
        (["show", "--only"], "ranges,v", {"ranges,vmap"}),
        (["bisect", "--by"], "k", {"kernels"}),
        (["bisect"], "--o", {"--output"}),
        # --paranoid
        (["check"], "--pa", {"--patches"}),
    ],
)
def test_names_are_completed(words: list[str], incomplete: str, offered: set[str]) -> None:
    """The old names of options still work, and are not offered."""
    complete = BashComplete(main, {}, "vmapdbg", "_VMAPDBG_COMPLETE")
    assert {item.value for item in complete.get_completions(words, incomplete)} == offered
