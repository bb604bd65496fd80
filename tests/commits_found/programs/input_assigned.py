# tinygrad: a9069c177a
# open: issue #16618
# bisect: --by values --commits 76c10cd635..a9069c177a
# a jitted step assigns to its input, and returns another value: the assign is not in the captured graph
# right: 1.0 2.0 3.0 4.0 5.0
from tinygrad import Tensor, TinyJit


@TinyJit
def step(weight: Tensor) -> Tensor:
    loss = (weight * 2).sum()
    weight.assign(weight + 1)
    return loss


weight = Tensor.zeros(1).contiguous().realize()
for _ in range(5):
    step(weight)
    print(weight.item(), end=" ")
print()
