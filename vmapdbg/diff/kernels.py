"""Pairs kernels that compute the same, and finds kernels that were fused or split. Names and order do not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from vmapdbg.diff.neutral import Reading
from vmapdbg.diff.pairing import match_by_levels, match_in_order, share
from vmapdbg.diff.result import KernelChange, KernelSide
from vmapdbg.diff.sequences import find_opcodes
from vmapdbg.diff.source import blank_lines, canonize_source
from vmapdbg.model.capture import Kernel
from vmapdbg.model.vocabulary import KernelField, KernelStatus, MatchedBy

# Below this share in common, two kernels are not versions of the same kernel.
_LEAST_ALIKE = 0.5
_COST_FIELDS: tuple[KernelField, ...] = (
    "global_size",
    "local_size",
    "local_bytes",
    "threads",
    "launches",
    "executed_ops",
    "bytes",
)


@dataclass(frozen=True)
class _Program:
    """A kernel, its number and key, and the ids after of its nodes; a node without a partner has a negative id."""

    number: int
    kernel: Kernel
    key: str
    outputs: frozenset[int]
    nodes: frozenset[int]

    @cached_property
    def canonical(self) -> str:
        return canonize_source(self.kernel.source, self.kernel.name)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(blank_lines(self.kernel.source, self.kernel.name))

    @cached_property
    def costs(self) -> tuple[object, ...]:
        return tuple(getattr(self.kernel, name) for name in _COST_FIELDS)

    @property
    def side(self) -> KernelSide:
        return KernelSide(self.number, self.kernel)


def compare_kernels(before: Reading, after: Reading, nodes: Mapping[int, int]) -> tuple[KernelChange, ...]:
    """Returns all kernels of both sides, paired by what they write, then by key, by source, by likeness.

    `nodes` maps node ids of before to ids of after. The order is that of after; kernels of before alone come last. In
    the neutral form kernels that write another node of the same computation are paired, too.
    """

    def rename(ids: Iterable[int]) -> frozenset[int]:
        # ids of after are not negative
        return frozenset(nodes.get(node, -1 - node) for node in ids)

    left, right = _list_programs(before, rename), _list_programs(after, frozenset)
    same_outputs = _match_outputs(left, right)
    moved = _match_moved(left, right) if before.is_neutral else {}
    fused = _find_absorbed(right, _leave_out(left, moved), {j: i for i, j in same_outputs.items()})
    split = _find_absorbed(left, _leave_out(right, moved.values()), same_outputs)
    changes = [_join("fused-from", [left[i] for i in many], [right[one]]) for one, many in fused.items()]
    changes += [_join("split-into", [left[one]], [right[i] for i in many]) for one, many in split.items()]
    done_before = {side.number for change in changes for side in change.before}
    done_after = {side.number for change in changes for side in change.after}
    free = {i: j for i, j in (same_outputs | moved).items() if i not in done_before and j not in done_after}
    changes += [_compare("nodes" if i in moved else "outputs", left[i], right[j]) for i, j in free.items()]
    rest_before = [item for item in left if item.number not in done_before | free.keys()]
    rest_after = [item for item in right if item.number not in done_after | set(free.values())]
    changes += _match_rest(rest_before, rest_after)
    return tuple(sorted(changes, key=_order))


def _list_programs(reading: Reading, rename: Callable[[Iterable[int]], frozenset[int]]) -> list[_Program]:
    kernels = zip(reading.schedule.kernels, reading.compared.kernels, strict=True)
    return [
        _Program(number, kernel, item.key, rename(item.outputs), rename(item.nodes))
        for number, (kernel, item) in enumerate(kernels)
    ]


def _order(change: KernelChange) -> tuple[bool, int, list[int]]:
    first = change.after or change.before
    return not change.after, first[0].number, [side.number for side in change.before]


def _match_outputs(before: Sequence[_Program], after: Sequence[_Program]) -> dict[int, int]:
    return _match_by(
        [item for item in before if item.outputs],
        [item for item in after if item.outputs],
        lambda item: (item.outputs, item.nodes, item.key, item.canonical, item.costs),
        lambda item: (item.outputs, item.key, item.canonical, item.costs),
        lambda item: (item.outputs, item.key),
        lambda item: item.outputs,
    )


def _match_moved(before: Sequence[_Program], after: Sequence[_Program]) -> dict[int, int]:
    """Pairs kernels that write different buffers but share most of their nodes: one computes what the other writes."""
    left, right = _without_common_outputs(before, after), _without_common_outputs(after, before)
    scored = [
        (-alike, i, j, one.number, other.number)
        for i, one in enumerate(left)
        for j, other in enumerate(right)
        if (one.outputs <= other.nodes or other.outputs <= one.nodes)
        and (alike := share(len(one.nodes & other.nodes), len(one.nodes) + len(other.nodes))) >= _LEAST_ALIKE
    ]
    return match_in_order((i, j) for *_, i, j in sorted(scored))


def _without_common_outputs(programs: Sequence[_Program], others: Sequence[_Program]) -> list[_Program]:
    """Returns the programs whose outputs none of the others writes."""
    written = frozenset(node for item in others for node in item.outputs)
    return [item for item in programs if item.outputs and not item.outputs & written]


def _leave_out(programs: Sequence[_Program], numbers: Iterable[int]) -> list[_Program]:
    left_out = set(numbers)
    return [item for item in programs if item.number not in left_out]


def _match_by(
    before: Sequence[_Program], after: Sequence[_Program], *levels: Callable[[_Program], Hashable]
) -> dict[int, int]:
    """Pairs the numbers of programs by the keys of each level, the most specific first."""

    def number(programs: Sequence[_Program]) -> list[dict[int, Hashable]]:
        return [{item.number: describe(item) for item in programs} for describe in levels]

    return match_by_levels(number(before), number(after))


def _find_absorbed(
    whole: Sequence[_Program], parts: Sequence[_Program], partner: Mapping[int, int]
) -> dict[int, list[int]]:
    """Maps each program of `whole` to the programs of `parts` whose outputs it computes, if there are several.

    `partner` maps a program of `whole` to the part with the same outputs. No program of `whole` writes the outputs of
    the other parts.
    """
    loose = _without_common_outputs(parts, whole)
    found: dict[int, list[int]] = {}
    for item in whole:
        inside = [part.number for part in loose if part.outputs <= item.nodes]
        if item.number in partner:
            inside.append(partner[item.number])
        if len(inside) > 1:
            found[item.number] = sorted(inside)
    return found


def _join(status: KernelStatus, before: Sequence[_Program], after: Sequence[_Program]) -> KernelChange:
    return KernelChange(status, "nodes", tuple(i.side for i in before), tuple(i.side for i in after), ())


def _compare(matched_by: MatchedBy, before: _Program, after: _Program) -> KernelChange:
    costs = zip(_COST_FIELDS, before.costs, after.costs, strict=True)
    changed: tuple[KernelField, ...] = tuple(name for name, one, other in costs if one != other)
    if before.canonical != after.canonical:
        changed = ("source", *changed)
    status = "changed" if changed else "unchanged"
    return KernelChange(status, matched_by, (before.side,), (after.side,), changed)


_Match = Callable[[Sequence[_Program], Sequence[_Program]], dict[int, int]]


def _match_rest(before: Sequence[_Program], after: Sequence[_Program]) -> list[KernelChange]:
    """Pairs kernels without common outputs: by key, by source, then the most alike first."""
    changes: list[KernelChange] = []
    left, right = {item.number: item for item in before}, {item.number: item for item in after}
    ways: dict[MatchedBy, _Match] = {"key": _match_keys, "source": _match_sources, "similarity": _match_alike}
    for matched_by, match in ways.items():
        found = match(list(left.values()), list(right.values()))
        changes += [_compare(matched_by, left.pop(i), right.pop(j)) for i, j in found.items()]
    changes += [KernelChange("only-before", "", (item.side,), (), ()) for item in left.values()]
    changes += [KernelChange("only-after", "", (), (item.side,), ()) for item in right.values()]
    return changes


def _match_keys(before: Sequence[_Program], after: Sequence[_Program]) -> dict[int, int]:
    return _match_by(
        [item for item in before if item.key],
        [item for item in after if item.key],
        lambda item: (item.key, item.nodes, item.canonical, item.costs),
        lambda item: (item.key, item.canonical, item.costs),
        lambda item: item.key,
    )


def _match_sources(before: Sequence[_Program], after: Sequence[_Program]) -> dict[int, int]:
    return _match_by(before, after, lambda item: (item.canonical, item.costs), lambda item: item.canonical)


def _match_alike(before: Sequence[_Program], after: Sequence[_Program]) -> dict[int, int]:
    scored = [
        (-alike, abs(i - j), i + j, one.number, other.number)
        for i, one in enumerate(before)
        for j, other in enumerate(after)
        if (alike := _likeness(one, other)) >= _LEAST_ALIKE
    ]
    return match_in_order((i, j) for *_, i, j in sorted(scored))


def _likeness(one: _Program, other: _Program) -> float:
    """Returns the larger of two shares: nodes that both compute, lines that both have."""
    nodes = share(len(one.nodes & other.nodes), len(one.nodes) + len(other.nodes))
    # sorted, because the result of difflib may depend on the order of the sides
    return max(nodes, _compare_lines(*sorted((one.lines, other.lines))))


# the layers of a network are a few programs under many names
@lru_cache(maxsize=65536)
def _compare_lines(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """Returns the share of lines that two programs have in common, in order; 0 if it is too small to matter."""
    whole = len(one) + len(other)
    # two upper bounds that are fast to compute: the lines of the shorter program, and the common lines in any order
    if share(min(len(one), len(other)), whole) < _LEAST_ALIKE:
        return 0.0
    if share((Counter(one) & Counter(other)).total(), whole) < _LEAST_ALIKE:
        return 0.0
    opcodes = find_opcodes(one, other)
    return share(sum(end - start for tag, start, end, _, _ in opcodes if tag == "equal"), whole)
