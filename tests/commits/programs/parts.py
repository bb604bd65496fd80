"""Programs of several kinds in one process. A part that this tinygrad does not have prints its error.

After each part it prints tinygrad's own count of kernels and copies that ran, without replays."""

import os

from tinygrad import Tensor, TinyJit, Variable, nn
from tinygrad.helpers import GlobalCounters

replayed = 0
is_null = os.environ.get("NULL") == "1"


def show(name, *values):
    print(name, *([] if is_null else [[round(float(x), 4) for x in value.flatten().tolist()] for value in values]))


def plain():
    x = (Tensor([[float(i * j % 7) for i in range(8)] for j in range(4)]) / 3).realize()
    w = Tensor([[float(i + j) / 8 for i in range(4)] for j in range(8)]).realize()
    show("softmax", x.softmax(1).realize())
    show("matmul", (x @ w).relu().sum(0).realize())
    show("mean", ((x - x.mean(1, keepdim=True)) * x.sum()).realize())


def training():
    x = Tensor([[float(i * j % 5) for i in range(8)] for j in range(4)]).realize()
    layer = nn.Linear(8, 2)
    layer.weight = Tensor([[float(i - j) / 9 for i in range(8)] for j in range(2)]).realize()
    layer.bias = Tensor([0.5, 0.25]).realize()
    layer.weight.requires_grad = layer.bias.requires_grad = True
    optimizer = nn.optim.SGD([layer.weight, layer.bias], lr=0.01)
    with Tensor.train():
        for _ in range(2):
            optimizer.zero_grad()
            # after the step it would be computed with the new weights
            loss = (layer(x).relu() ** 2).mean().backward().realize()
            optimizer.step()
            show("loss", loss, layer.weight)


def variables():
    t = Tensor([float(i) for i in range(10)]).realize()
    n = Variable("n", 1, 9)
    for size in (3, 5):
        show("variable", (t[: n.bind(size)] * 2).sum().realize())


def custom():
    from tinygrad.uop.ops import KernelInfo, UOp

    def add_one(out, a):
        i = UOp.range(4, 0)
        return out[i].store(a[i] + 1).end(i).sink(arg=KernelInfo(name="add_one"))

    a = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    out = Tensor.custom_kernel(Tensor.empty(4), a, fxn=add_one)[0]
    show("custom", (out * 2).realize())


def devices():
    names = ("NULL:1", "NULL:2") if is_null else ("CPU:1", "CPU:2")
    x = Tensor([float(i) for i in range(8)]).realize().shard(names, axis=0).realize()
    show("sharded", (x + 1).realize())
    show("reduced", (x * 2).sum().realize())


def jit():
    global replayed

    @TinyJit
    def step(t):
        return (t.exp() + t.sum()).realize()

    for number in range(4):
        t = Tensor([float(number), 1.0, 2.0]).realize()
        before = GlobalCounters.kernel_count
        out = step(t)
        replayed += (GlobalCounters.kernel_count - before) * (number >= 2)
        show("jit", out)


for part in (plain, training, variables, custom, devices, jit):
    first = GlobalCounters.kernel_count
    try:
        part()
    except Exception as error:
        print(part.__name__, "is not for this tinygrad:", type(error).__name__, str(error)[:60])
    print("ran", part.__name__, GlobalCounters.kernel_count - first - replayed)
