"""tinygrad 0.14: as 0.13, but a buffer is described by its ParamArg, and a copy between devices is a SINK at first."""

from __future__ import annotations

from vmapdbg.child.adapters.calls import Calls, UOp


class ParamArgs(Calls):
    family = "0.14"

    def first_element(self, buffer: UOp, is_stored: bool) -> UOp:
        return buffer.index(0)

    def is_compute(self, call: UOp) -> bool:
        # a SINK that stores what it loads from another device becomes a COPY after the schedule is made
        devices = {buffer.device for buffer in call.src[1:] if buffer.device is not None}
        return super().is_compute(call) and len(devices) <= 1
