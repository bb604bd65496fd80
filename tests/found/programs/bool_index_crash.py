# cause: an index that is a bool cast to int becomes a bool cast to an index, which the specification of kernels refuses
# found by: hunt, seed 2 number 153
# on 0.12.0: crash: RuntimeError: UOp verification failed at 8 on Ops.CAST dtypes.index 1 [(Ops.CMPLT, dtypes.bool, None)] None
# on 0.13.0: crash: RuntimeError: UOp verification failed at 8 on Ops.CAST dtypes.weakint 1 [(Ops.CMPLT, dtypes.bool, None)] None
# on 0.14.0: crash: RuntimeError: UOp verification failed at 11 on Ops.INDEX dtypes.float 2 [(Ops.PARAM, dtypes.float, ParamArg(1, dtypes.float, device='CPU')), (Ops.CMPL
# on patches: crash: RuntimeError: UOp verification failed at 8 on Ops.CAST dtypes.index 1 [(Ops.CMPLT, dtypes.bool, None)] None
import numpy as np
from tinygrad import Tensor, dtypes

x = Tensor(np.array([0.3, -0.5], dtype="float32")).realize()
print(x.gather(0, (x > 0.2).cast(dtypes.int)).numpy())
