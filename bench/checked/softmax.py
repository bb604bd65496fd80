"""A softmax over rows."""

from tinygrad import Tensor

Tensor.manual_seed(1)
x = Tensor.rand(1024, 1024).realize()
x.softmax().realize()
