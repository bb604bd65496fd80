"""A program on any tinygrad as it is, call by call."""

from __future__ import annotations

from collections.abc import Callable

from vmapdbg.child.evidence.call_by_call import BetweenCalls, CallByCall, watch_rewrites
from vmapdbg.child.evidence.observed import ObservedCollector
from vmapdbg.child.evidence.suite_folder import SuiteFolder
from vmapdbg.child.listen import hooks
from vmapdbg.child.listen.recorder import ObservingRecorder
from vmapdbg.child.listen.user_lines import set_internal_folders
from vmapdbg.install.overlay import overlay_dir


class JudgedRecorder(BetweenCalls, ObservingRecorder):
    """Has the schedules from tinygrad as it is."""


class JudgedCollector(CallByCall, ObservedCollector):
    """Has the evidence from whatever release it is."""


def start(folder: SuiteFolder) -> Callable[[], None]:
    """Has what this process realizes handed on. Returns what is to be called when the process ends."""
    # `Tensor.realize` is wrapped with a helper of the overlay's
    set_internal_folders(str(overlay_dir()))
    recorder = JudgedRecorder(folder)
    collector = JudgedCollector(folder, recorder)
    hooks.start(collector.watch, recorder)
    watch_rewrites(folder, recorder)
    return collector.close
