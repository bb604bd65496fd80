# tinygrad: 76c10cd635~1
# fixed by 76c10cd635 (2026-06-12): jit: don't memplan buffers reachable from live tensors; issue #16571
# bisect: --by values --commits 76c10cd635~8..9e72a6b376
# a jitted step leaves a lazy gradient behind, which is read after the call: its graph reads a buffer of the captured
# call, whose memory the planner put into its arena, so no kernel writes that buffer
# right: the same four times
from tinygrad import Tensor, TinyJit

weight = Tensor([[1.0], [2.0], [3.0]]).contiguous().realize()
x, y = Tensor.ones(4, 3, 2).contiguous().realize(), Tensor.ones(4, 2).contiguous().realize()


@TinyJit
def step() -> Tensor:
    out = (x.permute(0, 2, 1).contiguous() @ weight).relu().flatten(1)
    loss = (out * y).sum(axis=1)
    loss.sum().backward()
    weight.grad = None
    (loss * 0.5).sum().backward()
    return loss.mean().realize()


for _ in range(4):
    step()
    assert weight.grad is not None
    print(weight.grad.flatten().tolist())
