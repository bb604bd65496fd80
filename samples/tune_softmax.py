# A softmax whose result a matmul reads, to be tuned.
#
# What to see: tinygrad as it is computes the division and the exponential of the softmax again for each of the 64 columns of the values.
# `tune` stores the softmax: one kernel more, and the matmul only multiplies and adds.
#
#   vmapdbg show samples/tune_softmax.py --patches none --time
#   vmapdbg tune samples/tune_softmax.py --patches none
#   vmapdbg tune samples/tune_softmax.py --tinygrad 0.14.0 --by memory
#
# expect[none]: kernels 3
from tinygrad import Tensor

scores = Tensor([i % 97 / 50 for i in range(256 * 256)]).reshape(256, 256).realize()
values = Tensor([i % 89 / 89 for i in range(256 * 64)]).reshape(256, 64).realize()
out = (scores.softmax() @ values).realize()
