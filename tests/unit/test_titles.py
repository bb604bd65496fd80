"""What a kernel is called: a user finds a matmul by its shape, not by its loops."""

from __future__ import annotations

from typing import Any

import pytest
from captures import make_kernel, make_node, make_schedule

from vmapdbg.child.capture.titles import add_titles
from vmapdbg.model.capture import Kernel, Node


def name_kernel(*nodes: Node, **changes: Any) -> Kernel:
    computed = tuple(node.id for node in nodes if node.op != "PARAM")
    kernel = make_kernel("r_1", nodes=computed, **{"executed_ops": 10**9, **changes})
    (named,) = add_titles(make_schedule(nodes=nodes, kernels=(kernel,))).kernels
    return named


def multiply(left: tuple[int, ...], right: tuple[int, ...], shape: tuple[int, ...], method: str) -> list[Node]:
    """Nodes 0 to 4: the product of two operands that are broadcast to a shape."""
    return [
        make_node(0, "PARAM", left),
        make_node(1, "PARAM", right),
        make_node(2, "EXPAND", shape, src=(0,)),
        make_node(3, "EXPAND", shape, src=(1,)),
        make_node(4, "MUL", shape, src=(2, 3), method=method),
    ]


@pytest.mark.parametrize(
    ("method", "title"),
    [
        ("__matmul__", "matmul 64x32x16"),
        ("linear", "matmul 64x32x16"),
        ("scaled_dot_product_attention", "scaled_dot_product_attention matmul 64x32x16"),
        ("conv2d", "conv2d 64x32"),
    ],
)
def test_a_sum_of_products_is_a_matmul_with_its_sizes(method: str, title: str) -> None:
    nodes = multiply((64, 1, 16), (1, 32, 16), (64, 32, 16), method)
    nodes.append(make_node(5, "REDUCE_AXIS", (64, 32, 1), src=(4,), arg="ADD (2,)", method=method, phase="backward"))
    named = name_kernel(*nodes)
    assert (named.title, named.main, named.phase) == (title, 5, "backward")


def test_batches_and_what_is_computed_beside_the_matmul_are_named() -> None:
    nodes = multiply((8, 64, 1, 16), (8, 1, 32, 16), (8, 64, 32, 16), "__matmul__")
    nodes.append(make_node(5, "REDUCE_AXIS", (8, 64, 32, 1), src=(4,), arg="ADD (3,)", method="__matmul__"))
    for number, method in enumerate(("gelu", "__radd__", "relu", "__truediv__"), 6):
        nodes.append(make_node(number, "ADD", (8, 64, 32, 1), src=(number - 1,), method=method))
    assert name_kernel(*nodes).title == "matmul 8x64x32x16 + div + relu + 2 more"


def test_reduced_axes_are_followed_through_a_permute() -> None:
    """Since 0.14 a reduce has its axes first, and operands are broadcast without an EXPAND."""
    nodes = [
        make_node(0, "PARAM", (64, 1, 16)),
        make_node(1, "PARAM", (1, 32, 16)),
        make_node(2, "MUL", (64, 32, 16), src=(0, 1), method="__matmul__"),
        make_node(3, "PERMUTE", (16, 64, 32), src=(2,), arg="(2, 0, 1)", method="__matmul__"),
        make_node(4, "REDUCE", (64, 32), src=(3,), arg="ADD (0,)", method="__matmul__"),
    ]
    assert name_kernel(*nodes).title == "matmul 64x32x16"


def test_a_product_of_one_value_with_a_vector_is_no_matmul() -> None:
    nodes = multiply((64, 16), (1, 16), (64, 16), "mul")
    nodes.append(make_node(5, "REDUCE_AXIS", (64, 1), src=(4,), arg="ADD (1,)", method="sum"))
    assert name_kernel(*nodes).title == "sum 64x16 + mul"


def test_a_reduce_that_tinygrad_replaces_by_a_formula_does_not_name_the_kernel() -> None:
    nodes = (
        make_node(0, "EXPAND", (512, 512)),
        make_node(1, "REDUCE_AXIS", (512, 1), src=(0,), arg="ADD (1,)", method="arange"),
        make_node(2, "MUL", (512,), src=(1,), method="__mul__"),
    )
    assert name_kernel(*nodes, executed_ops=1024).title == "mul 512 + arange"


def test_a_gather_is_an_index_and_no_sum() -> None:
    nodes = (
        make_node(0, "EXPAND", (5, 200)),
        make_node(1, "REDUCE_AXIS", (5, 1), src=(0,), arg="ADD (1,)", method="__getitem__"),
        make_node(2, "RESHAPE", (5,), src=(1,), method="__getitem__"),
    )
    assert name_kernel(*nodes, executed_ops=0).title == "index 5"


def test_a_kernel_that_computes_nothing_is_a_copy() -> None:
    nodes = make_node(0, "PARAM", (4, 8)), make_node(1, "CONTIGUOUS", (4, 8), src=(0,), method="contiguous")
    assert name_kernel(*nodes).title == "copy 4x8"
    assert name_kernel(make_node(0, "PARAM")).title == ""
