"""The switches of tinygrad that change what it schedules and compiles: `PCONTIG`, `NOOPT`, ..."""

from __future__ import annotations

# these only print or note, or TinyJit sets them while it captures
_CHANGE_NOTHING = frozenset({"CAPTURING", "DEBUG", "DEBUG_RANGEIFY", "PROFILE", "TRACEMETA", "VIZ"})


def read_switches() -> dict[str, int | str]:
    """Returns the value of each switch, by the name of its environment variable.

    DEV is left out from 0.13 on: its value is an object of tinygrad, and a process without tinygrad may read these.
    """
    from tinygrad.helpers import ContextVar

    known = {name: switch.value for name, switch in ContextVar._cache.items() if name not in _CHANGE_NOTHING}
    return {name: value for name, value in known.items() if isinstance(value, (int, str))}


def find_changed(switches: dict[str, int | str]) -> dict[str, int | str]:
    """Returns the switches with another value in this process, without switches that it does not have."""
    here = read_switches()
    return {name: value for name, value in switches.items() if here.get(name, value) != value}
