# As good as it gets: one sum.
from tinygrad import Tensor

x = Tensor([i * 7 % 31 / 31 for i in range(16384)]).reshape(128, 128).realize()
out = x.sum(1).realize()
