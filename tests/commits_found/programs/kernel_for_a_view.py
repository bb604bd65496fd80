# tinygrad: 34481830f1~1
# fixed by 34481830f1 (2026-06-10): rangeify: fix cost function for AFTER(out, CALL)
# bisect: --by kernels --commits 34481830f1~8..a83710396c
# attention on views of what a custom kernel wrote: its result is copied to a second buffer first
# right: 5 kernels in the schedule of the attention, not 6
from tinygrad import Tensor, UOp
from tinygrad.uop.ops import AxisType, KernelInfo


def matmul(out: UOp, a: UOp, b: UOp) -> UOp:
    i, j = UOp.range(out.shape[0], 0), UOp.range(out.shape[1], 1)
    k = UOp.range(a.shape[1], 2, axis_type=AxisType.REDUCE)
    cell = out[i, j].set(0.0)
    cell = cell[i, j].set(cell.after(k)[i, j] + a[i, k] * b[k, j], end=k)
    return cell.end(i, j).sink(arg=KernelInfo(name="matmul", opts_to_apply=()))


x, w, mixed = Tensor.ones(14, 6).contiguous(), Tensor.ones(6, 48).contiguous(), Tensor.empty(14, 48)
Tensor.realize(x, w)
mixed = Tensor.custom_kernel(mixed, x, w, fxn=matmul)[0].reshape(2, 7, 2, 4, 6)
q = mixed[:, :, :, :2].reshape(2, 7, 4, 6).transpose(1, 2)
k, v = (mixed[:, :, :, i].transpose(1, 2) for i in (2, 3))
out = q.scaled_dot_product_attention(k, v, enable_gqa=True)
print(out.sum().item())
