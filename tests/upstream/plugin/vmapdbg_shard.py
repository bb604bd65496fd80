"""A pytest plugin for our tests and for upstream's: `--shard 2/3` runs about a third of the tests that `-m` and `-k`
have left. Which shard a test is in depends on its id alone, not on the other files of the run."""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", default="1/1", metavar="I/N", help="run part I of N of the chosen tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shard, shards = map(int, str(config.getoption("--shard")).split("/"))
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[zlib.crc32(item.nodeid.encode()) % shards == shard - 1].append(item)
    if chosen[False]:
        config.hook.pytest_deselected(items=chosen[False])
        items[:] = chosen[True]
