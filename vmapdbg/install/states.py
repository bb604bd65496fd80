"""The states of the patches that are looked at beside each other: all on, none, and all but one."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.install.patches import ALL, SWITCHABLE, Patches


@dataclass(frozen=True)
class PatchState:
    """Which patches are on. `off` names the one that is off where it is just one; empty for all on, and for none."""

    patches: Patches
    off: str = ""

    @property
    def words(self) -> str:
        """`all patches on`, `without close-ranges`, `no patch on`."""
        if self.off:
            return f"without {self.off}"
        return "all patches on" if self.patches else "no patch on"


def list_states() -> list[PatchState]:
    """Returns all patches on first, then none, then all but one, in the order of the table."""
    without = [PatchState(ALL - {name}, name) for name in SWITCHABLE]
    return [PatchState(ALL), PatchState(frozenset()), *without]
