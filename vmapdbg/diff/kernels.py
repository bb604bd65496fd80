"""Pairs kernels that compute the same, and finds kernels that were fused or split. Names and order do not count."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import get_args

from vmapdbg.diff.neutral import Reading
from vmapdbg.diff.pairing import find_opcodes, match_alike, match_levels, share
from vmapdbg.diff.result import KernelChange, KernelSide
from vmapdbg.diff.source import blank_lines, canonize_source
from vmapdbg.model.capture import Kernel
from vmapdbg.model.vocabulary import KernelField, KernelStatus, MatchedBy

_LEAST_ALIKE = 0.5  # with a lower share in common, two kernels are not versions of one
_COST_FIELDS: tuple[KernelField, ...] = tuple(name for name in get_args(KernelField) if name != "source")
# For each way to pair programs, the fields that are equal: the most specific first.
_LEVELS: dict[MatchedBy, tuple[tuple[str, ...], ...]] = {
    "outputs": (
        ("outputs", "nodes", "key", "canonical", "costs"),
        ("outputs", "key", "canonical", "costs"),
        ("outputs", "key"),
        ("outputs",),
    ),
    "key": (("key", "nodes", "canonical", "costs"), ("key", "canonical", "costs"), ("key",)),
    "source": (("canonical", "costs"), ("canonical",)),
}


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
    """Returns the kernels of both sides, paired by what they write, then by key, source and likeness: in the order of
    after, and then the kernels that only before has. `nodes` maps node ids of before to ids of after. In the neutral
    form, kernels that write different nodes of one computation are paired, too."""
    left, right = list(_list_programs(before, nodes)), list(_list_programs(after))
    same_outputs = _match_by("outputs", left, right)
    moved: dict[int, int] = {}
    if before.is_neutral:
        # one computes what the other writes
        moved = _match_alike("nodes", _without_common_outputs(left, right), _without_common_outputs(right, left))
    partners = {j: i for i, j in same_outputs.items()}
    changes = list(_find_absorbed("fused-from", right, [item for item in left if item.number not in moved], partners))
    stayed = [item for item in right if item.number not in moved.values()]
    changes += _find_absorbed("split-into", left, stayed, same_outputs)
    done_before = {side.number for change in changes for side in change.before}
    done_after = {side.number for change in changes for side in change.after}
    rest_before = {item.number: item for item in left if item.number not in done_before}
    rest_after = {item.number: item for item in right if item.number not in done_after}

    def pair(way: MatchedBy, found: Mapping[int, int]) -> None:
        for i, j in found.items():
            if i in rest_before and j in rest_after:
                changes.append(_compare(way, rest_before.pop(i), rest_after.pop(j)))

    pair("outputs", same_outputs)
    pair("nodes", moved)
    rest: tuple[MatchedBy, ...] = ("key", "source", "similarity")
    for way in rest:
        match = _match_alike if way == "similarity" else _match_by
        pair(way, match(way, list(rest_before.values()), list(rest_after.values())))
    changes += [KernelChange("only-before", "", (item.side,), (), ()) for item in rest_before.values()]
    changes += [KernelChange("only-after", "", (), (item.side,), ()) for item in rest_after.values()]
    return tuple(sorted(changes, key=_order))


def _list_programs(reading: Reading, nodes: Mapping[int, int] | None = None) -> Iterator[_Program]:
    """Yields the kernels with the ids of `nodes`; other ids of before become negative, ids of after are not."""
    kernels = zip(reading.schedule.kernels, reading.compared.kernels, strict=True)
    for number, (kernel, compared) in enumerate(kernels):
        outputs, computed = frozenset(compared.outputs), frozenset(compared.nodes)
        if nodes is not None:
            outputs, computed = (frozenset(nodes.get(i, -1 - i) for i in ids) for ids in (outputs, computed))
        yield _Program(number, kernel, compared.key, outputs, computed)


def _order(change: KernelChange) -> tuple[bool, int, list[int]]:
    first = change.after or change.before
    return not change.after, first[0].number, [side.number for side in change.before]


def _without_common_outputs(programs: Sequence[_Program], others: Sequence[_Program]) -> list[_Program]:
    """Returns the programs whose outputs none of the others writes."""
    written = frozenset[int]().union(*(item.outputs for item in others))
    return [item for item in programs if item.outputs and not item.outputs & written]


def _match_by(way: MatchedBy, before: Sequence[_Program], after: Sequence[_Program]) -> dict[int, int]:
    """Pairs the numbers of programs by a row of the table of levels."""
    levels = _LEVELS[way]
    needed = attrgetter(*levels[-1])
    sides: list[list[dict[int, object]]] = []
    for programs in (before, after):
        known = [item for item in programs if needed(item)]
        sides.append([{item.number: attrgetter(*fields)(item) for item in known} for fields in levels])
    return match_levels(*sides)


def _find_absorbed(
    status: KernelStatus, whole: Sequence[_Program], parts: Sequence[_Program], partners: Mapping[int, int]
) -> Iterator[KernelChange]:
    """Yields a change for each program of `whole` that computes the outputs of several `parts`: of the part with the
    same outputs, its partner, and of parts whose outputs no program of `whole` writes."""
    loose = _without_common_outputs(parts, whole)
    sides = {part.number: part.side for part in parts}
    for item in whole:
        absorbed = [part.number for part in loose if part.outputs <= item.nodes]
        if item.number in partners:
            absorbed.append(partners[item.number])
        if len(absorbed) > 1:
            one, many = (item.side,), tuple(sides[number] for number in sorted(absorbed))
            before, after = (many, one) if status == "fused-from" else (one, many)
            yield KernelChange(status, "nodes", before, after, ())


def _compare(matched_by: MatchedBy, before: _Program, after: _Program) -> KernelChange:
    costs = zip(_COST_FIELDS, before.costs, after.costs, strict=True)
    changed: tuple[KernelField, ...] = tuple(name for name, one, other in costs if one != other)
    if before.canonical != after.canonical:
        changed = ("source", *changed)
    status = "changed" if changed else "unchanged"
    return KernelChange(status, matched_by, (before.side,), (after.side,), changed)


def _match_alike(way: MatchedBy, before: Sequence[_Program], after: Sequence[_Program]) -> dict[int, int]:
    """Pairs numbers by the share of common nodes or lines. By `nodes`, one must compute what the other writes."""

    def measure(one: _Program, other: _Program) -> float:
        alike = share(len(one.nodes & other.nodes), len(one.nodes) + len(other.nodes))
        if way == "similarity":
            # sorted, because the result of difflib may depend on the order of the sides
            alike = max(alike, _compare_lines(*sorted((one.lines, other.lines))))
        elif not (one.outputs <= other.nodes or other.outputs <= one.nodes):
            return 0.0
        return 0.0 if alike < _LEAST_ALIKE else alike

    return {before[i].number: after[j].number for i, j in match_alike(before, after, measure).items()}


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
