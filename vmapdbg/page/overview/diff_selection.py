"""The part of a diff that somebody asks for: a schedule, a kernel, or what a line of the user's code made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from vmapdbg.diff import CaptureDiff, KernelChange, KernelSide, ScheduleDiff
from vmapdbg.model.capture import Node
from vmapdbg.model.failure import Failure
from vmapdbg.model.wording import join_first
from vmapdbg.page.overview.selection import is_line

_MOST_NAMED = 5


@dataclass(frozen=True)
class SelectedChange:
    """What is asked for of a schedule, in the form of its diff, and the whole of that."""

    part: ScheduleDiff
    whole: ScheduleDiff


def select_change(diff: CaptureDiff, schedule: int | None) -> list[ScheduleDiff]:
    """Returns the schedules with an index after, or before where they are only there; all for None. Raises Failure."""
    if schedule is None:
        return list(diff.schedules)
    found = [item for item in diff.schedules if item.after == schedule]
    found = found or [item for item in diff.schedules if item.after is None and item.before == schedule]
    if not found:
        raise Failure(f"there is no schedule {schedule}: {diff.before.schedules} before, {diff.after.schedules} after")
    return found


def select_changed_kernels(diff: CaptureDiff, asked: str, schedule: int | None) -> list[SelectedChange]:
    """Returns of each schedule that has them the kernels with a name, or that with a number, on either side. Raises
    Failure where there is none, and for a number that several schedules have."""
    chosen = select_change(diff, schedule)
    found = [
        _select(item, lambda change: any(_is_asked(side, asked) for side in (*change.before, *change.after)))
        for item in chosen
    ]
    found = [item for item in found if item.part.kernels]
    if not found:
        sides = (side for s in chosen for c in s.kernels for side in (*c.before, *c.after))
        names = list(dict.fromkeys(side.kernel.name for side in sides))
        raise Failure(f"there is no kernel {asked}: {join_first(names, _MOST_NAMED) or 'there is none'}")
    if asked.isdecimal() and len(found) > 1:
        raise Failure(f"{len(found)} schedules have a kernel {asked}: choose one with --schedule")
    return found


def _is_asked(side: KernelSide, asked: str) -> bool:
    return asked in (side.kernel.name, str(side.number))


def select_changed_line(diff: CaptureDiff, asked: str, schedule: int | None) -> list[SelectedChange]:
    """Returns of each schedule that has them the kernels and nodes of a line of the user, on either side. Raises
    Failure where there are none."""

    def has(lines: Iterable[str | None]) -> bool:
        return any(line is not None and is_line(line, asked) for line in lines)

    found: list[SelectedChange] = []
    for item in select_change(diff, schedule):
        before = {node.id for node in _list_before(item) if has([node.line])}
        after = {node.id for node in _list_after(item) if has([node.line])}
        for same in item.same_nodes:
            if has([same.line]):
                before.add(same.before)
                after.add(same.after)
        kernels = [change for change in item.kernels if has(_list_lines(change))]
        if before or after or kernels:
            found.append(SelectedChange(_leave(item, kernels, before, after), item))
    if not found:
        raise Failure(f"no node is made at {asked}: a line is asked for as FILE:N, as the report names it")
    return found


def _list_before(item: ScheduleDiff) -> list[Node]:
    return [*(change.before for change in item.nodes), *item.nodes_only_before]


def _list_after(item: ScheduleDiff) -> list[Node]:
    return [*(change.after for change in item.nodes), *item.nodes_only_after]


def _list_lines(change: KernelChange) -> list[str]:
    return [line for side in (*change.before, *change.after) for line in side.kernel.lines]


def _select(item: ScheduleDiff, is_asked: Callable[[KernelChange], bool]) -> SelectedChange:
    kernels = [change for change in item.kernels if is_asked(change)]
    before = {node for change in kernels for side in change.before for node in _list_nodes(side)}
    after = {node for change in kernels for side in change.after for node in _list_nodes(side)}
    return SelectedChange(_leave(item, kernels, before, after), item)


def _list_nodes(side: KernelSide) -> tuple[int, ...]:
    return (*side.kernel.nodes, *side.kernel.outputs)


def _leave(
    item: ScheduleDiff, kernels: Iterable[KernelChange], before: Collection[int], after: Collection[int]
) -> ScheduleDiff:
    """Returns a schedule with some kernels and nodes alone, named by their ids on both sides."""
    return replace(
        item,
        nodes=tuple(change for change in item.nodes if change.before.id in before or change.after.id in after),
        nodes_only_before=tuple(node for node in item.nodes_only_before if node.id in before),
        nodes_only_after=tuple(node for node in item.nodes_only_after if node.id in after),
        same_nodes=tuple(same for same in item.same_nodes if same.before in before or same.after in after),
        vmap_map=tuple(change for change in item.vmap_map if change.before in before or change.after in after),
        bufferizes=tuple(
            made
            for made in item.bufferizes
            if (made.before is not None and made.before.node in before)
            or (made.after is not None and made.after.node in after)
        ),
        kernels=tuple(kernels),
        outputs=(),
        folded_before=(),
        folded_after=(),
    )
