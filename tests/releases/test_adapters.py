"""Each release renders kernels for every target without its device, and nothing that the tool relies on is missing."""

from __future__ import annotations

import json

import pytest
from release_trees import NULL, run_observed, run_on

TARGETS = ["c", "metal", "cuda", "opencl", "hip", "wgsl", "llvm"]
SCRIPT = """
import json, sys
from vmapdbg.child.listen.releases import schedule_tensors
from vmapdbg.child.listen.rendering import compile_kernel
from tinygrad import Tensor
x, w = Tensor.empty(16, 16), Tensor.empty(16, 16)
schedule_tensors([(x @ w).softmax()])
kernels = [k for s in recorder.schedules for k in s.passed.kernels]
out = {"missing": recorder.missing, "sources": {}}
for target in sys.argv[1:]:
    compiled = [compile_kernel(k.ast, target) for k in kernels if k.is_compute]
    out["sources"][target] = [[c.name, c.source, list(c.outs), list(c.ins), len(c.uops)] for c in compiled]
print(json.dumps(out))
"""


def test_every_target_is_rendered(release: str) -> None:
    said = json.loads(run_observed(release, SCRIPT, *TARGETS))
    assert said["missing"] == []
    for target in TARGETS:
        assert len(said["sources"][target]) == 4
        for name, source, outs, ins, uops in said["sources"][target]:
            assert name in source
            assert outs == [0]
            assert 0 not in ins
            assert uops > 5
    assert len({json.dumps(said["sources"][target]) for target in TARGETS}) == len(TARGETS)


OWN = """
from vmapdbg.child.listen.rendering import make_renderer
import tinygrad.renderer.cstyle as cstyle, sys
own = type(make_renderer(sys.argv[1]))
print(own is not own.__mro__[1], own.__mro__[1] in vars(cstyle).values())
"""


@pytest.mark.parametrize("target", ["metal", "hip"])
def test_a_rendered_kernel_is_not_taken_for_the_devices(release: str, target: str) -> None:
    """tinygrad caches programs by the renderer's class: ours, without a compiler, must not be in its way."""
    assert run_on(release, "-c", OWN, target, **NULL).split() == ["True", "True"]
