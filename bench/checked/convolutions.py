"""Three convolutions with pooling between them, and a classifier."""

from tinygrad import Tensor

Tensor.manual_seed(1)
x = Tensor.rand(16, 1, 28, 28).realize()
for width, wider in ((1, 16), (16, 32), (32, 32)):
    pooled = x.conv2d(Tensor.rand(wider, width, 3, 3).realize() * 0.1, padding=1).relu().max_pool2d()
    assert isinstance(pooled, Tensor)
    x = pooled
(x.flatten(1) @ Tensor.rand(x.flatten(1).shape[1], 10).realize()).softmax().realize()
