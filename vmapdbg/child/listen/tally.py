"""Counts what happens in a run, apart from its records, with what every tinygrad has. Runs in the child."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from vmapdbg.child.listen.launches import runs_captured_now
from vmapdbg.child.listen.releases import find_assigned, is_complete
from vmapdbg.model.account import Account, Counted, Left


class Tally:
    """What happened so far. `inside` counts running calls of `Tensor.realize` and captured calls. `count_recorded`
    returns how many launches the schedules have that were recorded so far."""

    def __init__(self, count_recorded: Callable[[], int]) -> None:
        self.count_recorded = count_recorded
        self.seen: Counter[Counted] = Counter()
        self.shown = 0  # launches of calls of `Tensor.realize` that recorded schedules have
        self.inside = 0
        self.publish: Callable[[], None] = lambda: None  # is called when something was counted
        self.prunes = False  # whether a TinyJit with prune=True may capture now
        self.left: list[Left] = []  # why something will not be compared or shown, where no schedule says it
        self.counters: Any = None  # tinygrad's own counter of kernels and copies
        # launches before tinygrad's counter was reset, and launches that were noted already
        self._before_reset = self._noted = 0

    def clear(self) -> None:
        """Forgets what happened until now."""
        self.count_launches()
        self.seen.clear()
        self.left.clear()
        self.shown = 0

    def count_launches(self) -> int:
        """Returns how many kernels and copies ran since the last call."""
        counter: int = 0 if self.counters is None else self.counters.kernel_count
        ran = self._before_reset + counter
        new, self._noted = max(ran - self._noted, 0), ran  # the program may set the counter as it likes
        return new

    def settle(self) -> Account:
        """Returns what happened, and how many of the launches are shown."""
        if not self.inside:
            self.seen["other launches"] += self.count_launches()
        whats: tuple[Counted, ...] = ("outputs", "buffers", "replays", "calls", "schedules", "launches")
        others: tuple[Counted, ...] = ("gradients", "other schedules", "other launches")
        found = {what: self.seen[what] for what in (*whats, *filter(self.seen.__getitem__, others))}
        return Account(found, {"launches": self.shown}, tuple(self.left))

    def on_reset(self, reset: Callable[..., Any], *arguments: Any) -> Any:
        self._before_reset += self.counters.kernel_count
        return reset(*arguments)

    def on_realize(self, realize: Callable[..., Any], *tensors: Any, **options: Any) -> Any:
        asked = [tensor.uop for tensor in tensors if not is_complete(tensor)]
        if asked and not runs_captured_now():
            self.seen["outputs"] += len(asked)
            self.seen["buffers"] += len(find_assigned(asked, asked[0].sink(*asked[1:]).toposort()))
        return self._inside("launches", realize, *tensors, **options)

    def on_schedule(self, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.seen["schedules" if self.inside else "other schedules"] += 1
        self.publish()
        return make(*arguments, **options)

    def on_call(self, call: Callable[..., Any], tiny: Any, *arguments: Any, **options: Any) -> Any:
        self.seen["calls"] += 1
        before, self.prunes = self.prunes, getattr(tiny, "prune", False) and tiny.captured is None
        try:
            return call(tiny, *arguments, **options)
        finally:
            if self.prunes and tiny.captured is not None:
                self.count_launches()  # prune=True runs these only once, after the last realize: replays show them
            self.prunes = before

    def on_replay(self, replay: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.seen["replays"] += 1
        if self.prunes:
            self.count_launches()
        return self._inside(None, replay, *arguments, **options)

    def _inside(self, what: Counted | None, run: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Runs a function, and counts its launches as `what`."""
        self.seen["other launches" if not self.inside else "launches"] += self.count_launches()
        self.inside += 1
        before = self.count_recorded()
        self.publish()
        try:
            return run(*arguments, **options)
        finally:
            self.inside -= 1
            ran = self.count_launches()
            if what is not None:
                self.seen[what] += ran
                self.shown += min(ran, self.count_recorded() - before)
            self.publish()
