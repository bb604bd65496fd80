"""Rows of a table by index, their mean, and the gradient of the table."""

from tinygrad import Tensor

Tensor.manual_seed(1)
table = Tensor.rand(2000, 64).realize()
chosen = Tensor.randint(8, 64, high=2000).realize()
means = table[chosen].mean(1)
(gradient,) = means.square().sum().gradient(table)
Tensor.realize(means, gradient)
