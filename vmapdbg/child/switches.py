"""The switches of tinygrad that change what it schedules and compiles: `PCONTIG`, `NOOPT`, ... Runs in the child."""

from __future__ import annotations

# what only prints or notes, and what TinyJit sets while it captures
_CHANGE_NOTHING = frozenset({"CAPTURING", "DEBUG", "DEBUG_RANGEIFY", "PROFILE", "TRACEMETA", "VIZ"})


def read_switches() -> dict[str, int | str]:
    """Returns the value that each of them has now, by its name, which is that of the environment variable.

    From 0.13 on that of DEV is an object of tinygrad: it is left out, as a process without tinygrad may read these.
    """
    from tinygrad.helpers import ContextVar

    known = {name: switch.value for name, switch in ContextVar._cache.items() if name not in _CHANGE_NOTHING}
    return {name: value for name, value in known.items() if isinstance(value, (int, str))}


def find_changed(switches: dict[str, int | str]) -> dict[str, int | str]:
    """Returns those that have another value in this process; those that are not here yet left out."""
    here = read_switches()
    return {name: value for name, value in switches.items() if here.get(name, value) != value}
