"""What `check` cannot compute again, and why. Runs in the child."""

from __future__ import annotations

from typing import Any

_CANNOT = {
    "KERNEL": "a custom kernel is in its graph",
    "AFTER": "a custom kernel is in its graph",
    "CUSTOM_KERNEL": "a custom kernel is in its graph",
    "MULTI": "it is sharded over devices",
    "MSELECT": "it is sharded over devices",
    "MSTACK": "it is sharded over devices",
    "BUFFER_VIEW": "it reads a DISK",
    "BIND": "its shape is symbolic",
    "DEFINE_VAR": "its shape is symbolic",
}
_NO_VALUES = {"NULL": "the NULL device computes nothing", "DISK": "it reads a DISK", "TINYFS": "it reads TINYFS"}


def find_no_values(sink: Any) -> str | None:
    """Returns why the values of a graph cannot be read, or None."""
    for u in sink.toposort():
        # 0.14 has no DEVICE: a BUFFER knows its own
        name = {"DEVICE": "arg", "BUFFER": "device"}.get(u.op.name)
        device = name and getattr(u, name)
        for one in device if isinstance(device, tuple) else (device or "",):
            if (reason := _NO_VALUES.get(one.split(":")[0])) is not None:
                return reason
    return None


def find_obstacle(sink: Any) -> str | None:
    """Returns why tinygrad cannot compute a graph again, or None."""
    nodes = list(sink.toposort())
    # sharding brings variables and copies along
    if any(not isinstance(u.arg, str) for u in nodes if u.op.name == "DEVICE"):
        return _CANNOT["MULTI"]
    return next((_CANNOT[u.op.name] for u in nodes if u.op.name in _CANNOT), None)
