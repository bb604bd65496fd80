"""Finds with which other arguments a replay of TinyJit gives exactly a wrong value, in the process that compares: with
two of its inputs exchanged, or with what an earlier call of the function was given."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from vmapdbg.check.result import EarlierArguments, WrongVariable
from vmapdbg.child.evidence.evidence import EarlierCall, Evidence
from vmapdbg.reference.graph import OpGraph

MOST_TRIED = 16
"""How many pairs of inputs, and how many single inputs of an earlier call, are tried: each needs the whole graph."""


def find_replayed(evidence: Evidence, slot: int, is_got: Callable[[OpGraph, int], bool]) -> dict[str, Any]:
    """Returns the fields of an OutputCheck that say with which other arguments a node of `asked` gets a wrong value, {}
    if none are found. `is_got` returns whether a node of another graph has exactly this value. Raises Unknown."""
    for pair, graph in _exchange_inputs(evidence):
        if is_got(graph, slot):
            return {"exchanged": pair}
    for call in evidence.earlier:
        for arguments, graph in _list_earlier(evidence, call):
            if is_got(graph, call.slots[slot] if arguments.variables else slot):
                return {"replayed": arguments}
    return {}


def _exchange_inputs(evidence: Evidence) -> Iterator[tuple[tuple[int, int], OpGraph]]:
    """Yields two inputs of the same shape that hold different contents, and the graph with these exchanged."""
    graph, numbers = evidence.graphs["asked"], evidence.input_numbers
    slots = sorted((slot for slot in numbers if slot in graph.inputs), key=numbers.__getitem__)
    pairs = (
        (one, other)
        for one, other in itertools.combinations(slots, 2)
        if graph.nodes[one] == graph.nodes[other] and graph.inputs[one] != graph.inputs[other]
    )
    for one, other in itertools.islice(pairs, MOST_TRIED):
        inputs = {numbers[one]: graph.inputs[other], numbers[other]: graph.inputs[one]}
        yield (numbers[one], numbers[other]), _give_inputs(graph, numbers, inputs)


def _list_earlier(evidence: Evidence, call: EarlierCall) -> Iterator[tuple[EarlierArguments, OpGraph]]:
    """Yields arguments of an earlier call, few first, and the graph with these."""
    singles = [(number,) for number in itertools.islice(call.inputs, MOST_TRIED)]
    for numbers in dict.fromkeys([(), *singles, tuple(call.inputs)]):
        inputs = {number: call.inputs[number] for number in numbers}
        is_all = len(inputs) == len(call.inputs)
        if inputs:
            graph = _give_inputs(evidence.graphs["asked"], evidence.input_numbers, inputs)
            yield EarlierArguments(call.replay, numbers, (), is_all and not call.variables), graph
        if call.variables:
            variables = tuple(
                WrongVariable(name, got, evidence.variables[name]) for name, got in call.variables.items()
            )
            graph = _give_inputs(call.graph, call.input_numbers, inputs)
            yield EarlierArguments(call.replay, numbers, variables, is_all), graph


def _give_inputs(graph: OpGraph, input_numbers: Mapping[int, int], inputs: Mapping[int, tuple[str, ...]]) -> OpGraph:
    """Returns a graph with other contents of some of TinyJit's inputs, by their numbers."""
    given = {slot: inputs.get(input_numbers.get(slot, -1), names) for slot, names in graph.inputs.items()}
    return replace(graph, inputs=given)
