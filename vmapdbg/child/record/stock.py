"""Records what stock tinygrad does, without the overlay: the "before" of `--baseline=stock`. Runs in the child.

Stock says less: there are ranges and realized axes, kernels and source, and no reasons. The functions are wrapped where
their callers look them up; nothing of what they do changes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from vmapdbg.child.record.recorder import Recorder
from vmapdbg.import_hook import PatchingFinder
from vmapdbg.overlay import check_found, load_patching

OBSERVER = "observer of stock tinygrad"


def observe_stock(recorder: Recorder) -> None:
    """Has the modules of tinygrad report to `recorder` when they are imported."""
    patches = {
        "tinygrad.schedule.rangeify": functools.partial(watch_pass, recorder),
        "tinygrad.engine.schedule": functools.partial(watch_schedules, recorder),
        "tinygrad.tensor": recorder.tensor_ready,
    }
    sys.meta_path.insert(0, PatchingFinder(patches, check_found))


def watch_pass(recorder: Recorder, module: Any) -> None:
    """Has `run_rangeify` report what it was given and what it decided. Raises UnknownShape."""

    def watched(run_rangeify: Callable[..., Any], tsink: Any, debug: bool = False) -> Any:
        result, context = run_rangeify(tsink, debug)
        toposort = tsink.toposort()
        consumers: dict[Any, dict[Any, None]] = {u: {} for u in toposort}
        for u in toposort:
            for s in u.src:
                consumers[s][u] = None
        seen = SimpleNamespace(range_map=context.range_map, realize_map=context.realize_map, vmap_map={})
        # what a tag stands for is known to the caller alone: frame 1 is that of the wrapper, 2 the caller's
        recorder.uop_tagged(sys._getframe(2).f_locals.get("uop_list", []))
        recorder.pass_starts(tsink, toposort, consumers, {}, seen, frozenset())
        return result, context

    with load_patching().Changes(OBSERVER) as changes:
        changes.wrap(module, "run_rangeify", watched, "tsink", "debug")


def watch_schedules(recorder: Recorder, module: Any) -> None:
    """Has `create_schedule` and the schedule cache report what is asked for and made. Raises UnknownShape."""

    def watched(create_schedule: Callable[..., Any], sched_sink: Any) -> Any:
        items, buffers = create_schedule(sched_sink)
        recorder.schedule_created(items, buffers)
        return items, buffers

    class WatchedCache(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            recorder.schedule_asked(key, found is not None)
            return found

    with load_patching().Changes(OBSERVER) as changes:
        changes.wrap(module, "create_schedule", watched, "sched_sink")
        changes.replace_value(module, "schedule_cache", dict, WatchedCache)
