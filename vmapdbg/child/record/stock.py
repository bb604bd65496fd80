"""Records what stock tinygrad does, without the overlay: the "before" of `--baseline=stock`. Runs in the child.

Stock says less: there are ranges and realized axes, kernels and source, and no reasons. The functions are wrapped where
their callers look them up; nothing of what they do changes.
"""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace
from typing import Any

from vmapdbg.child.record.recorder import Recorder
from vmapdbg.overlay import PatchingFinder


def observe_stock(recorder: Recorder) -> None:
    """Has the modules of tinygrad report to `recorder` when they are imported."""
    patches = {
        "tinygrad.schedule.rangeify": functools.partial(watch_pass, recorder),
        "tinygrad.engine.schedule": functools.partial(watch_schedules, recorder),
        "tinygrad.tensor": recorder.tensor_ready,
    }
    sys.meta_path.insert(0, PatchingFinder(patches))


def watch_pass(recorder: Recorder, module: Any) -> None:
    run_rangeify = module.run_rangeify

    def watched(tsink: Any, debug: bool = False) -> Any:
        result, context = run_rangeify(tsink, debug)
        toposort = tsink.toposort()
        consumers: dict[Any, dict[Any, None]] = {u: {} for u in toposort}
        for u in toposort:
            for s in u.src:
                consumers[s][u] = None
        seen = SimpleNamespace(range_map=context.range_map, realize_map=context.realize_map, vmap_map={})
        # what a tag stands for is known to the caller alone
        recorder.uop_tagged(sys._getframe(1).f_locals.get("uop_list", []))
        recorder.pass_starts(tsink, toposort, consumers, {}, seen, frozenset())
        return result, context

    module.run_rangeify = watched


def watch_schedules(recorder: Recorder, module: Any) -> None:
    create_schedule = module.create_schedule

    def watched(sched_sink: Any) -> Any:
        items, buffers = create_schedule(sched_sink)
        recorder.schedule_created(items, buffers)
        return items, buffers

    class WatchedCache(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            recorder.schedule_asked(key, found is not None)
            return found

    module.create_schedule = watched
    module.schedule_cache = WatchedCache(module.schedule_cache)
