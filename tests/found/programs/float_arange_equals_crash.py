# cause: an arange that is cast to float and compared with a float is taken for a gather, whose float index the specification of kernels refuses
# found by: hand
# on 0.12.0: crash: RuntimeError: UOp verification failed at 12 on Ops.CAST dtypes.index 1 [(Ops.GEP, dtypes.float, (0,))] None
# on 0.13.0: crash: RuntimeError: UOp verification failed at 8 on Ops.CAST dtypes.weakint 1 [(Ops.GEP, dtypes.float, (0,))] None
# on 0.14.0: crash: RuntimeError: UOp verification failed at 15 on Ops.INDEX dtypes.float 2 [(Ops.PARAM, dtypes.float, ParamArg(2, dtypes.float, device='CPU')), (Ops.INDE
# on patches: crash: RuntimeError: UOp verification failed at 12 on Ops.CAST dtypes.index 1 [(Ops.GEP, dtypes.float, (0,))] None
from tinygrad import Tensor

x = Tensor([1.0, 2.0, 3.0, 4.0]).contiguous().realize()
f = Tensor([[2.0], [0.0], [1.5]]).contiguous().realize()
picked = (Tensor.arange(4).float() == f).where(x, 0).sum(-1)
print(picked.numpy())
