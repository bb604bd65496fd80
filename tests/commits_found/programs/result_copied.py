# tinygrad: f253c4469d~1
# fixed by f253c4469d (2026-08-07): remove contiguous from custom_kernel
# bisect: --by kernels --commits f253c4469d~6..73e670c10f
# a custom kernel reads what another one wrote, transposed twice: it gets a copy
# right: two kernels, not three; tinygrad counted 655 such copies in a step of llama
from tinygrad import Tensor, UOp
from tinygrad.uop.ops import KernelInfo


def add_one(out: UOp, x: UOp) -> UOp:
    out, x = out.flatten(), x.flatten()
    i = UOp.range(x.numel(), 0)
    return out[i].store(x[i] + 1).end(i).sink(arg=KernelInfo(name="add_one"))


x = Tensor.arange(32).reshape(8, 4).clone().realize()
y = Tensor.custom_kernel(Tensor.empty_like(x), x, fxn=add_one)[0]
z = Tensor.custom_kernel(Tensor.empty_like(x), y.T.T, fxn=add_one)[0]
print(z.sum().item())
