# As good as it gets: elementwise ops, one kernel that reads each element once.
from tinygrad import Tensor

x = Tensor([i * 7 % 31 / 31 for i in range(16384)]).realize()
out = ((x * 2 + 1).sqrt() * x).realize()
