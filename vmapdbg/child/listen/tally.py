"""Counts what happens in a run, apart from what is recorded of it: only with what every tinygrad has. Runs in the
child."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from vmapdbg.child.listen.launches import runs_captured_now
from vmapdbg.child.listen.releases import find_assigned, is_complete
from vmapdbg.model.account import Account, Counted, Left


class Tally:
    """What happened so far, by what is counted. `inside` counts the running calls of `Tensor.realize` and of what
    TinyJit captured. `count_recorded` returns how many schedules were recorded until now."""

    def __init__(self, count_recorded: Callable[[], int]) -> None:
        self.count_recorded = count_recorded
        # calls of `Tensor.realize`: how much ran, and which recorded schedules it should be
        self.realized: list[tuple[int, range]] = []
        self.seen: Counter[Counted] = Counter()
        self.inside = 0
        # why something will not be compared or shown, where no schedule says it
        self.left: list[Left] = []
        # tinygrad's own counter of kernels and copies
        self.counters: Any = None
        # launches before tinygrad's counter was reset, and those that were put down already
        self._before_reset = self._noted = self._last = 0

    def count_launches(self) -> int:
        """Returns how many kernels and copies ran since the last call."""
        counter: int = 0 if self.counters is None else self.counters.kernel_count
        ran = self._before_reset + counter
        # the program may set the counter as it likes
        new, self._noted = max(ran - self._noted, 0), ran
        return new

    def settle(self, shown: Sequence[int]) -> Account:
        """Returns what happened, and how many of the launches are shown: `shown` counts those of each schedule."""
        self.seen["other launches"] += self.count_launches()
        whats: tuple[Counted, ...] = ("outputs", "buffers", "replays", "calls", "schedules", "launches")
        others: tuple[Counted, ...] = ("other schedules", "other launches")
        found = {what: self.seen[what] for what in whats}
        for what in others:
            if count := self.seen[what]:
                found[what] = count
        launches = sum(min(ran, sum(shown[i] for i in places)) for ran, places in self.realized)
        return Account(found, {"launches": launches}, tuple(self.left))

    def on_reset(self, reset: Callable[..., Any], *arguments: Any) -> Any:
        self._before_reset += self.counters.kernel_count
        return reset(*arguments)

    def on_realize(self, realize: Callable[..., Any], *tensors: Any, **options: Any) -> Any:
        asked = [tensor.uop for tensor in tensors if not is_complete(tensor)]
        if asked and not runs_captured_now():
            self.seen["outputs"] += len(asked)
            self.seen["buffers"] += len(find_assigned(asked, asked[0].sink(*asked[1:]).toposort()))
        first = self.count_recorded()
        try:
            return self._inside("launches", realize, *tensors, **options)
        finally:
            self.realized.append((self._last, range(first, self.count_recorded())))

    def on_schedule(self, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.seen["schedules" if self.inside else "other schedules"] += 1
        return make(*arguments, **options)

    def on_call(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.seen["calls"] += 1
        return call(*arguments, **options)

    def on_replay(self, replay: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.seen["replays"] += 1
        return self._inside(None, replay, *arguments, **options)

    def _inside(self, what: Counted | None, run: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Runs a function, and counts its launches as `what`."""
        self.seen["other launches" if not self.inside else "launches"] += self.count_launches()
        self.inside += 1
        try:
            return run(*arguments, **options)
        finally:
            self.inside -= 1
            self._last = self.count_launches()
            if what is not None:
                self.seen[what] += self._last
