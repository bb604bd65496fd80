"""How the report says who made a wrong buffer."""

from __future__ import annotations

import pytest

from vmapdbg.check.result import KernelFault
from vmapdbg.page.check_sentences import describe_maker

SENTENCES = [
    (
        KernelFault("codegen", is_same=True),
        "the kernel as scheduled computes it right, its linear program the same wrong values: "
        "code generation made the fault",
    ),
    (
        KernelFault("codegen", is_same=False),
        "the kernel as scheduled computes it right, its linear program wrong values, but others: "
        "code generation made a fault",
    ),
    (
        KernelFault("codegen", "it writes outside of its buffer"),
        "the kernel as scheduled computes it right, its linear program does not (it writes outside of its buffer): "
        "code generation made the fault",
    ),
    (
        KernelFault("compiler"),
        "the kernel as scheduled and its linear program compute it right: "
        "the renderer, the compiler or the machine made the fault",
    ),
    (
        KernelFault("compiler", "it writes one buffer in two ways"),
        "the kernel's linear program computes it right: the renderer, the compiler or the machine made the fault",
    ),
    (
        KernelFault("lowering", "it is long"),
        "the kernel as scheduled computes it right: code generation or the compiler made the fault (it is long)",
    ),
    (
        KernelFault("lowering"),
        "the kernel as scheduled computes it right: code generation or the compiler made the fault",
    ),
]


@pytest.mark.parametrize(("fault", "sentence"), SENTENCES)
def test_sentences(fault: KernelFault, sentence: str) -> None:
    assert describe_maker(fault) == sentence
