# A training step of two residual blocks: convolutions, their norms, and plain gradient descent.
from tinygrad import Tensor

CHANNELS, SIZE, BATCH = 16, 16, 8


def data(*shape: int, step: int) -> Tensor:
    size = 1
    for n in shape:
        size *= n
    return Tensor([(i * step % 29 - 14) / 80 for i in range(size)]).reshape(shape).realize()


images, labels = data(BATCH, CHANNELS, SIZE, SIZE, step=3), data(BATCH, CHANNELS, step=5)
weights = [data(CHANNELS, CHANNELS, 3, 3, step=step) for step in (7, 11)]
for weight in weights:
    weight.requires_grad = True


def block(x: Tensor, weight: Tensor) -> Tensor:
    y = x.conv2d(weight, padding=1)
    y = (y - y.mean((0, 2, 3), keepdim=True)) * (y.var((0, 2, 3), keepdim=True) + 1e-5).rsqrt()
    return (y * y.sigmoid() + x).relu()


hidden = images
for weight in weights:
    hidden = block(hidden, weight)
loss = (hidden.mean((2, 3)) - labels).square().mean()
loss.backward()
Tensor.realize(loss, *(weight - weight.grad * 0.1 for weight in weights if weight.grad is not None))
