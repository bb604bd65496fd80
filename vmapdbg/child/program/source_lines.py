"""Finds the lines of a kernel's source that its loads and stores are on. Runs in the child."""

from __future__ import annotations

import re

from vmapdbg.child.program.linear import Access, LinearProgram

_STORE = re.compile(r"\s*(\*\(.*\) = |(data|temp|acc|buf)\w*\[.*\] = )")
_LOAD = re.compile(r"\s*[\w<> ]+ val\d+ = ")
_LOADED_FROM = re.compile(r"\s*[\w<> ]+ val\d+ = [(*]*(\w*)")


def find_source_lines(program: LinearProgram, source: str) -> dict[Access, int]:
    """Returns the line of the source (from 1) of each store, and of each load that has a line of its own.

    Empty where the lines cannot be told apart: a renderer that writes a store in another way.
    """
    lines = list(enumerate(source.split("\n"), 1))
    stores = [access for access in program.accesses if access.is_store]
    loads = [access for access in program.accesses if not access.is_store and access.buffer.space != "register"]
    load_lines = [i for i, line in lines if _LOAD.match(line)]
    if len(load_lines) != len(loads):
        # a register that is read twice may have a line, too
        registers = {buffer.name for buffer in program.buffers if buffer.space == "register"}
        found = ((i, _LOADED_FROM.match(line)) for i, line in lines)
        load_lines = [i for i, match in found if match is not None and match[1] not in registers]
    matched = [(stores, [i for i, line in lines if _STORE.match(line)]), (loads, load_lines)]
    return {
        access: line
        for accesses, numbers in matched
        if len(accesses) == len(numbers)
        for access, line in zip(accesses, numbers, strict=True)
    }
