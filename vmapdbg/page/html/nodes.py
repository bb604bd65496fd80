"""What the page explains: kernels and nodes, by name, with what was decided about them as data for the script."""

from collections.abc import Iterable, Iterator, Sequence

from vmapdbg.diff.result import KernelSide
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known
from vmapdbg.page.format import format_shape
from vmapdbg.page.overview import KernelRow, Place
from vmapdbg.page.view import View
from vmapdbg.page.why import Explanation, explain_kernel, explain_node

NodeKey = tuple[int, int]
"""The index of a schedule, and the id of a node in it."""

Steps = list[list[int]]
"""For each topic the numbers of its name and its sentences in the texts of the page."""

_MOST_CHARACTERS = 500_000
"""With more text than this (half of it per side of two), only nodes with a BUFFERIZE are explained."""


class Texts:
    """The texts of a page, each once, with its number. `size` counts their characters."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.size = 0

    def number(self, text: str) -> int:
        if text not in self.numbers:
            self.size += len(text)
        return self.numbers.setdefault(text, len(self.numbers))


def name_node(key: NodeKey) -> str:
    """Returns the name of a node in the page: `0:48` is node 48 of schedule 0."""
    return f"{key[0]}:{key[1]}"


def list_sides(place: Place) -> Iterator[tuple[str, int, Sequence[KernelSide]]]:
    """Yields the sides of a pair of kernels that its schedule is on, after first: name, schedule, kernels."""
    pair, change = place
    if pair.after is not None:
        yield "after", pair.after, change.after
    if pair.before is not None:
        yield "before", pair.before, change.before


class Explainer:
    """Names and explains the nodes of a view. A node that both sides have gets the name that after has for it. `nodes`
    has the nodes that the page explains: by name the side, the key, and the rows of the kernels that compute it."""

    def __init__(self, view: View) -> None:
        self.view = view
        captures = {"before": view.before, "after": view.after}
        self.schedules = {side: {s.index: s for s in capture.schedules} for side, capture in captures.items()}
        self._names: dict[NodeKey, str] = {}  # names after, of nodes on both sides
        for pair in view.schedules:
            if view.is_pair and pair.before is not None and pair.after is not None:
                for node, twin in pair.pair_nodes().items():
                    self._names[pair.before, node] = name_node((pair.after, twin))
        self._twins = {name: key for key, name in self._names.items()}
        self.nodes: dict[str, tuple[str, NodeKey, list[int]]] = {}

    def name(self, side: str, key: NodeKey) -> str:
        """Returns the name of a node in the page: `0:48`, or `b0:48` if only before has it."""
        return name_node(key) if side == "after" else self._names.get(key, f"b{name_node(key)}")

    def add(self, side: str, key: NodeKey, numbers: Iterable[int] = ()) -> None:
        """Has the page explain a node, if the schedule has it. `numbers` are rows of kernels that compute it."""
        if index_of(self.schedules[side][key[0]]).node(key[1]) is None:
            return
        _, _, rows = self.nodes.setdefault(self.name(side, key), (side, key, []))
        rows += [number for number in numbers if number not in rows]

    def choose(self, rows: Sequence[KernelRow], drawn: Iterable[str]) -> None:
        """Chooses the nodes to explain, the most important first; `rows` are rows of kernels, `drawn` names of nodes:
        nodes that differ between the sides, nodes of the first kernel of each row (the others are the same program),
        nodes with a finding, and nodes decided in a schedule that failed before it had kernels."""
        for pair in self.view.schedules:
            if self.view.is_pair and pair.before is not None and pair.after is not None:
                for node in (*(change.after for change in pair.nodes), *pair.nodes_only_after):
                    self.add("after", (pair.after, node.id))
                for node in pair.nodes_only_before:
                    self.add("before", (pair.before, node.id))
        for number, row in enumerate(rows):
            for side, index, kernels in list_sides(row.places[0]):
                for kernel in (each.kernel for each in kernels if side == "after" or self.view.is_pair):
                    for node in dict.fromkeys((*kernel.nodes, *kernel.outputs)):
                        self.add(side, (index, node), [number])
        self._add_others()
        for name in drawn:
            schedule, node = map(int, name.removeprefix("b").split(":"))
            self.add("before" if name.startswith("b") else "after", (schedule, node))

    def _add_others(self) -> None:
        for finding in self.view.after.findings:
            if finding.schedule is not None and finding.node is not None:
                self.add("after", (finding.schedule, finding.node))
        for schedule in self.view.after.schedules:
            if not schedule.kernels:
                made = [buffer.node for buffer in schedule.bufferizes]
                realized = [node.id for node in schedule.nodes if node.realized is not None]
                for node in (*made, *realized):
                    self.add("after", (schedule.index, node))

    def describe_nodes(self, lines: dict[str, int], texts: Texts) -> dict[str, list[object]]:
        """Returns for each node: what it is, its line's number (-1: none), the rows of its kernels, the outcome of its
        BUFFERIZE or nothing, and why: title and steps (None for a node without a BUFFERIZE on a too large page)."""
        described: dict[str, list[object]] = {}
        most = _MOST_CHARACTERS / (2 if self.view.is_pair else 1)
        for name, (side, (schedule_number, node_id), rows) in self.nodes.items():
            schedule = self.schedules[side][schedule_number]
            node = index_of(schedule).nodes[node_id]
            made = index_of(schedule).bufferizes.get(node.id)
            outcome, title, steps = "" if made is None else made.outcome, -1, None
            if outcome or node.realized is not None or texts.size < most:
                title, steps = _say(explain_node(schedule, node), texts)
                steps = self._join_steps(steps, self._twins.get(name), texts)
            line = node.line or ""
            number = lines.get(self.view.name_line(line) if side == "before" else line, -1)
            # `ADD  (4, 5)  float  softmax`
            words = (node.op, format_shape(node.shape), format_known("{}", node.dtype), node.method)
            what = texts.number("  ".join(filter(None, words)))
            described[name] = [what, number, rows, outcome, title, steps]
        return described

    def _join_steps(self, steps: Steps, twin: NodeKey | None, texts: Texts) -> Steps:
        """Puts what was decided before above what was decided after, if they differ."""
        if twin is None:
            return steps
        schedule = self.schedules["before"][twin[0]]
        _, old = _say(explain_node(schedule, index_of(schedule).nodes[twin[1]]), texts)
        if old == steps:
            return steps
        before, after = texts.number("before"), texts.number("after")
        note = texts.number(f"node {twin[1]}, with the node numbers of before")
        return [[before, note], *old, [after, texts.number("as it is now")], *steps]

    def explain_row(self, row: KernelRow, texts: Texts) -> tuple[int, Steps]:
        """Returns the title of a row of kernels and what was decided about its first kernel, as numbers of texts."""
        side, index, kernels = next(item for item in list_sides(row.places[0]) if item[2])
        schedule = self.schedules[side][index]
        return _say(explain_kernel(schedule, kernels[0].number, kernels[0].kernel), texts)


def _say(explanation: Explanation, texts: Texts) -> tuple[int, Steps]:
    """The title of an explanation and its steps, as numbers of texts."""
    steps: Steps = []
    for step in explanation.steps:
        if numbers := list(map(texts.number, (*step.sentences, *step.alerts))):
            steps.append([texts.number(step.topic), *numbers])
    return texts.number(explanation.title), steps
