"""Schedules programs that have no VMAP op, and prints the AST keys of every kernel.

`python stock_programs.py all` does it on the tinygrad that this process has, stock or with the overlay; `some` takes
the first variant of every fourth quick program, under one of the settings. It prints one JSON document:
{"overlay": bool, "patches": [..], "schedules": {"PCONTIG=0 spread(3, 5)": [[key, ..], ..]}}.
Only what a TinyJit needs for its capture runs. `test_stock_keys.py` compares several processes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import tinygrad.tensor
from stock_table import PROGRAMS, Program
from tinygrad import Tensor, UOp
from tinygrad.engine.schedule import schedule_cache
from tinygrad.helpers import Context
from tinygrad.uop import Ops

# each program runs under the first; under the others the first variant of each program, or of those named
SETTINGS: tuple[tuple[dict[str, int], set[str] | None], ...] = (
    ({"PCONTIG": 0}, None),
    ({"PCONTIG": 1}, None),
    ({"PCONTIG": 2}, None),
    ({"PCONTIG": 3}, None),
    ({"SPLIT_REDUCEOP": 0}, {"split_reduces", "rows"}),
)
SETTINGS_OF = {"all": SETTINGS, "some": SETTINGS[:1]}
# these take seconds, and other settings show nothing new in them
SLOW = {"transformer_training"}


class Recorder:
    """Stands in front of tinygrad's scheduler and keeps the AST keys of each schedule that it makes."""

    def __init__(self) -> None:
        self.schedules: list[list[str]] = []
        self.complete = tinygrad.tensor.complete_create_schedule_with_vars
        self.run = tinygrad.tensor.run_schedule
        self.executes = False
        tinygrad.tensor.complete_create_schedule_with_vars = self.create
        tinygrad.tensor.run_schedule = self.run_or_not

    def create(self, big_sink: UOp) -> Any:
        result = self.complete(big_sink)
        self.schedules.append([item.ast.key.hex() for item in result[1]])
        return result

    def run_or_not(self, *arguments: Any, **options: Any) -> None:
        if self.executes:
            self.run(*arguments, **options)

    def record(self, function: Program, arguments: tuple[Any, ...], executes: bool, together: bool) -> list[list[str]]:
        """Returns the schedules of one program: its results scheduled one after the other, or all at once.

        Each program starts with the same random state, and with an empty schedule cache, which does not know
        about PCONTIG. An exception is a part of the result: it must be the same one everywhere.
        """
        self.schedules, self.executes = [], executes
        schedule_cache.clear()
        Tensor.manual_seed(1)
        try:
            tensors = flatten_results(function(*arguments))
        except Exception as error:
            return [*self.schedules, [describe_error(error)]]
        for group in [tensors] if together and tensors else [[tensor] for tensor in tensors]:
            try:
                Tensor.realize(*group)
            except Exception as error:
                self.schedules.append([describe_error(error)])
        return self.schedules


def describe_error(error: Exception) -> str:
    return f"raised {type(error).__name__}: {str(error)[:80]}"


def flatten_results(result: Any) -> list[Tensor]:
    if result is None:
        return []
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result for tensor in flatten_results(part)]


def describe(name: str, arguments: Iterable[Any]) -> str:
    return f"{name}({', '.join(map(str, arguments))})"


def record_all(amount: str) -> dict[str, list[list[str]]]:
    """Every program as it is; some also with all results in one schedule, and under other settings."""
    recorder = Recorder()
    found: dict[str, list[list[str]]] = {}
    for setting, names in SETTINGS_OF[amount]:
        title = " ".join(f"{name}={value}" for name, value in setting.items())
        is_default, seen = setting == SETTINGS[0][0], set[str]()
        with Context(**setting):
            for name, function, arguments, executes in PROGRAMS:
                is_first = name not in seen
                seen.add(name)
                is_plain = is_first and name not in SLOW and name in (names or seen)
                if amount == "some" and len(seen) % 4 != 1:
                    continue
                if not is_plain and not (is_default and amount == "all"):
                    continue
                key = f"{title} {describe(name, arguments)}"
                assert key not in found, f"two programs are called {key}"
                found[key] = recorder.record(function, arguments, executes, together=False)
                if is_first and is_default and not executes and len(found[key]) > 1:
                    found[f"{key} together"] = recorder.record(function, arguments, executes, together=True)
    return found


def main() -> None:
    document = {"overlay": hasattr(Ops, "VMAPIN"), "patches": [], "schedules": record_all(sys.argv[1])}
    if "tinygrad_overlay._state" in sys.modules:
        document["patches"] = sorted(sys.modules["tinygrad_overlay._state"].patches)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
