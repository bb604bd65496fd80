"""What is drawn of a schedule, and what is shown of it at the same time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PicturePart:
    """One drawing: `svg` is empty where there is none; `note` says what is folded, or why."""

    title: str
    svg: str
    note: str


@dataclass(frozen=True)
class Picture:
    """The drawing of a schedule: `parts` has the whole first, then what is inside of its boxes. `side` is `before` or
    `after` on a page of two sides, else empty."""

    schedule: int
    title: str
    parts: tuple[PicturePart, ...]
    side: str = ""

    @property
    def svg(self) -> str:
        """All of its parts."""
        return "".join(part.svg for part in self.parts)


@dataclass(frozen=True)
class Drawing:
    """Pictures that stand beside each other: of a page with two sides before and after, else one."""

    pictures: tuple[Picture, ...]

    @property
    def title(self) -> str:
        """`schedule 3`; `schedule 3, before 2` where the number has changed, `schedule 3, only after` of one side."""
        last = self.pictures[-1]
        if not last.side:
            return last.title
        if len(self.pictures) == 1:
            return f"{last.title}, only {last.side}"
        first = self.pictures[0].schedule
        return last.title if first == last.schedule else f"{last.title}, before {first}"
