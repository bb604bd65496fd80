# A cumsum of 64 rows of 2,048 values: each result depends on all values before it.
#
# What to see: stock adds up a window of 256 values for each result, most of them multiplied by zero: 35 million ops. With short-scans a window has
# 16 values, and the totals of these blocks are scanned in the same way.
#
#   vmapdbg show samples/short_scan.py
#   vmapdbg lint samples/short_scan.py --patches all,-short-scans
#   vmapdbg diff samples/short_scan.py --baseline=all,-short-scans --time
#
# expect: prints "[0, 2096128, 266337280]"
# expect[all,-short-scans]: prints "[0, 2096128, 266337280]"
# expect: kernels 4
# expect[all,-short-scans]: kernels 3
from tinygrad import Tensor

x = Tensor.arange(64 * 2048).reshape(64, 2048).contiguous().realize()
y = x.cumsum(1).realize()
print(y.numpy()[[0, 0, 63], [0, 2047, 2047]].tolist())
