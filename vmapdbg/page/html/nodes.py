"""Why: what was decided about kernels and nodes, as compact data for the script of the page."""

from __future__ import annotations

from collections.abc import Iterable

from vmapdbg.model.capture import Capture, Node, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known
from vmapdbg.page.format import format_shape
from vmapdbg.page.graph.dot import clean_text
from vmapdbg.page.overview import KernelRow
from vmapdbg.page.text.why import Sentences
from vmapdbg.why import Explanation, explain_kernel, explain_node

NodeKey = tuple[int, int]
"""The index of a schedule, and the id of a node in it."""

Steps = list[list[int]]
"""For each topic the number of its name, and those of its sentences, in `Texts`."""

_MOST_CHARACTERS = 500_000
"""So much is said about nodes; then only nodes that have a buffer, or are one, are explained."""


class Texts:
    """Strings that a page has once, by their number."""

    def __init__(self) -> None:
        self.size = 0
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        clean = clean_text(text)
        if clean not in self._numbers:
            self.size += len(clean)
        return self._numbers.setdefault(clean, len(self._numbers))

    def list_all(self) -> list[str]:
        return list(self._numbers)


def name_node(key: NodeKey) -> str:
    """Returns what a node is called in the page: `0:48`, node 48 of schedule 0."""
    return f"{key[0]}:{key[1]}"


def find_nodes(groups: Iterable[tuple[int, KernelRow]], capture: Capture) -> dict[NodeKey, list[int]]:
    """Returns the nodes that the first kernel of each group computes, with the numbers of the groups that do. `groups`
    are all, with their numbers.

    Kernels of other layers are the same program: the first stands for all of them.
    """
    found: dict[NodeKey, list[int]] = {}
    for number, group in groups:
        place = group.places[0]
        index = index_of(capture.schedules[place.schedule])
        for node_id in dict.fromkeys((*group.kernel.nodes, *group.kernel.outputs)):
            if node_id in index.nodes:
                found.setdefault((place.schedule, node_id), []).append(number)
    return found


def find_telling(capture: Capture) -> Iterable[NodeKey]:
    """Yields nodes that one asks about although no kernel has them: those of findings, and of a schedule that failed
    before it had kernels those that have a buffer."""
    for finding in capture.findings:
        if finding.schedule is not None and finding.node is not None:
            yield finding.schedule, finding.node
    for schedule in capture.schedules:
        if not schedule.kernels:
            yield from ((schedule.index, made.node) for made in schedule.bufferizes)
            yield from ((schedule.index, node.id) for node in schedule.nodes if node.realized is not None)


def explain_group(group: KernelRow, capture: Capture, texts: Texts) -> tuple[int, Steps]:
    """Returns the title of a kernel and what was decided about it, as numbers of texts."""
    place = group.places[0]
    schedule = capture.schedules[place.schedule]
    return say_steps(schedule, explain_kernel(schedule, place.position, group.kernel), texts)


def describe_nodes(
    nodes: dict[NodeKey, list[int]], capture: Capture, lines: dict[str, int], texts: Texts
) -> dict[str, list[object]]:
    """Returns for each node what it is, the number of its line (-1 without one), the groups that compute it, whether it
    has a buffer (`kept`, `removed` or nothing), and why, as a title and steps.

    The steps are None for a node without a buffer where the page would become too large.
    """
    described: dict[str, list[object]] = {}
    # those with a buffer first: they are what was decided
    order = sorted(nodes, key=lambda key: key[1] not in index_of(capture.schedules[key[0]]).bufferizes)
    for key in order:
        schedule = capture.schedules[key[0]]
        index = index_of(schedule)
        node = index.nodes[key[1]]
        made = index.bufferizes.get(node.id)
        outcome = made.outcome if made is not None else ""
        title, steps = -1, None
        if outcome or node.realized is not None or texts.size < _MOST_CHARACTERS:
            title, steps = say_steps(schedule, explain_node(schedule, node), texts)
        line = lines.get(node.line or "", -1)
        what = texts.number(describe_node(node))
        described[name_node(key)] = [what, line, nodes[key], outcome, title, steps]
    return described


def describe_node(node: Node) -> str:
    """Returns `ADD  (4, 5)  float`."""
    words = (node.op, format_shape(node.shape), format_known("{}", node.dtype))
    return "  ".join(filter(None, words))


def say_steps(schedule: Schedule, explanation: Explanation, texts: Texts) -> tuple[int, Steps]:
    """Returns the title of an explanation and its steps, as numbers of texts."""
    sentences = Sentences(schedule, explanation)
    steps: Steps = []
    for step in explanation.steps:
        heading: str = schedule.buffer_op if step.topic == "BUFFERIZE" else step.topic
        said = [texts.number(sentence) for fact in step.facts for sentence in sentences.say(fact)]
        if said:
            steps.append([texts.number(heading), *said])
    return texts.number(sentences.say_title()), steps
