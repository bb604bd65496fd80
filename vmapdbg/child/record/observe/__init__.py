"""Observes what stock tinygrad decides, on any release from 0.12.0 on, with none of its code replaced.

An import hook notes the tests of the functions that decide (instrument.py, deciding.py), a recording dict who realizes
a node, a watched RewriteContext which node each buffer, store and kernel belongs to (hooks.py, recorder.py). What comes
out is one plain record a schedule (records.py); classify.py and verdicts.py name the rules in it.

    recorder = start()            # before the first import of tinygrad
    ...                           # the snippet runs
    recorder.schedules            # list[ObservedSchedule]
    recorder.missing              # what could not be observed, one line each
"""

from __future__ import annotations

from vmapdbg.child.record.observe.hooks import start
from vmapdbg.child.record.observe.recorder import ObservingRecorder
from vmapdbg.child.record.observe.records import (
    Condition,
    Decision,
    ObservedBuffer,
    ObservedKernel,
    ObservedPass,
    ObservedSchedule,
    RealizeDecision,
    Verdict,
)

__all__ = [
    "Condition",
    "Decision",
    "ObservedBuffer",
    "ObservedKernel",
    "ObservedPass",
    "ObservedSchedule",
    "ObservingRecorder",
    "RealizeDecision",
    "Verdict",
    "start",
]
