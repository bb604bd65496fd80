"""`why --value` follows a kernel through code generation: a fault that is planted in a pass is traced to that pass and
to the planted rule, on each release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.releases.test_why_value import find_wrong, follow, name_first_wrong

# puts a rule in front of the rules of a pass; it takes no UOp twice
PLANT = """
import tinygrad.codegen as codegen
from tinygrad.uop.ops import Ops, PatternMatcher, UPat

seen = set()
stock = codegen.graph_rewrite

def apply(x):
    made = None if x in seen else change(x)
    if made is not None:
        seen.update(made.toposort())
    return made

def rule(x):
    return apply(x)

def graph_rewrite(sink, pm, *arguments, **options):
    if options.get("name") == {name!r}:
        seen.clear()
        pm = PatternMatcher([(UPat({op}, name="x"), rule)]) + pm
    return stock(sink, pm, *arguments, **options)

codegen.graph_rewrite = graph_rewrite

def is_float(x):
    return "float" in str(x.dtype) and "ptr" not in str(x.dtype)

def change(x):
    {change}

from tinygrad import Tensor
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
((x * 2).sum(1) + 1).realize()
"""
# a sum becomes a maximum; all loads are of element 0; a store stores twice its value
CHANGES = {
    "max": ("Ops.ADD", "return x.src[0].alu(Ops.MAX, x.src[1]) if is_float(x) else None"),
    "index": (
        "Ops.INDEX",
        "return x.replace(src=(x.src[0], x.src[1] * 0, *x.src[2:]))"
        " if len(x.src) > 1 and getattr(x.src[0].arg, 'slot', x.src[0].arg) == 1 else None",
    ),
    "store": (
        "Ops.STORE",
        "return x.replace(src=(x.src[0], x.src[1] + x.src[1], *x.src[2:])) if is_float(x.src[1]) else None",
    ),
}
FIRST = {
    "early movement ops": "index",
    "load collapse": "max",
    "split ranges": "store",
    "initial symbolic": "max",
    "simplify ranges": "index",
    "postopt symbolic": "max",
}
OLD = {
    **FIRST,
    "expander": "max",
    "add local buffers": "max",
    "remove_reduce": "store",
    "add gpudims": "max",
    "** add loads (code)": "max",
    "devectorize": "max",
    "lower all index dtypes": "max",
}
NEW = {
    **FIRST,
    "expander": "store",
    "remove reduces": "index",
    "add local buffers": "index",
    "add gpudims": "max",
    "*** expand broadcast / add loads": "max",
    "devectorize2": "max",
    "final rewrite": "max",
}
CASES = [
    pytest.param(release, name, change, id=f"{release}-{name}")
    for release, passes in (("0.12.0", OLD), ("0.13.0", OLD), ("0.14.0", NEW))
    for name, change in passes.items()
]


def plant(name: str, change: str) -> str:
    op, body = CHANGES[change]
    return PLANT.format(name=name, op=op, change=body)


@pytest.mark.parametrize(("version", "name", "change"), CASES)
def test_a_planted_rule_is_named(version: str, name: str, change: str, tmp_path: Path) -> None:
    text = plant(name, change)
    output = find_wrong(follow(version, tmp_path, text))
    assert name_first_wrong(output) == name
    # a rule is where its pattern is
    (line,) = [number for number, line in enumerate(text.splitlines(), 1) if "UPat(" in line]
    assert output["rewrite"]["rule"] == f"snippet.py:{line}"
    difference: dict[str, Any] = output["rewrite"]["difference"]
    assert difference["got"] != difference["expected"]


RENDERER = """
from tinygrad.renderer.cstyle import ClangRenderer
stock = ClangRenderer.render
ClangRenderer.render = lambda self, uops: stock(self, uops).replace("*2.0f", "*4.0f").replace("2.0f*", "4.0f*")
from tinygrad import Tensor
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
((x * 2).sum(1) + 1).realize()
"""


@pytest.mark.parametrize("version", ["0.12.0"])
def test_a_fault_of_the_renderer_is_no_fault_of_a_pass(version: str, tmp_path: Path) -> None:
    output = find_wrong(follow(version, tmp_path, RENDERER))
    assert name_first_wrong(output) == "the kernels as they ran"
    followed = [one for one in output["passes"] if one["kind"] == "codegen"]
    assert len(followed) > 15
    assert {one["status"] for one in followed} == {"right"}


# only what UPCAST makes, a vector of indices, is added wrongly
OPTIMIZED = """
import tinygrad.codegen as codegen
from tinygrad import Tensor
from tinygrad.uop.ops import Ops, PatternMatcher, UPat

stock = codegen.graph_rewrite

def rule(x):
    is_vector = getattr(x.dtype, "count", 1) > 1 or x._shape
    return x.src[0].alu(Ops.MAX, x.src[1]) if is_vector else None

def graph_rewrite(sink, pm, *arguments, **options):
    made = stock(sink, pm, *arguments, **options)
    if options.get("name") != "expander":
        return made
    return stock(made, PatternMatcher([(UPat(Ops.ADD, name="x"), rule)]), name="planted")

codegen.graph_rewrite = graph_rewrite
x = Tensor([float(i) for i in range(64)]).realize()
(x + x * 2).realize()
"""


@pytest.mark.parametrize("version", ["0.12.0", "0.13.0", "0.14.0"])
def test_the_optimization_that_makes_it_wrong(version: str, tmp_path: Path) -> None:
    output = find_wrong(follow(version, tmp_path, OPTIMIZED))
    assert name_first_wrong(output) == "planted"
    found = {one["name"]: one["status"] for one in output["optimizations"]}
    assert found == {"without optimizations": "right", "with UPCAST 0 4 alone": "wrong"}
