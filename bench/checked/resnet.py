"""A training step of a small residual network: two blocks with batch norm, its loss, gradients and new weights."""

from tinygrad import Tensor

Tensor.manual_seed(1)
BATCH, SIZE, CHANNELS, CLASSES = 8, 16, 16, 10


def weight(*shape):
    return (Tensor.rand(*shape) * 0.2 - 0.1).realize()


def normalize(values):
    mean = values.mean((0, 2, 3), keepdim=True)
    return (values - mean) * ((values - mean).square().mean((0, 2, 3), keepdim=True) + 1e-5).rsqrt()


images, labels = weight(BATCH, 3, SIZE, SIZE), Tensor([i % CLASSES for i in range(BATCH)]).realize()
first, last = weight(CHANNELS, 3, 3, 3), weight(CHANNELS, CLASSES)
blocks = [(weight(CHANNELS, CHANNELS, 3, 3), weight(CHANNELS, CHANNELS, 3, 3)) for _ in range(2)]


def compute_loss():
    x = normalize(images.conv2d(first, padding=1)).relu()
    for one, two in blocks:
        inside = normalize(x.conv2d(one, padding=1)).relu()
        x = (x + normalize(inside.conv2d(two, padding=1))).relu()
    return (x.mean((2, 3)) @ last).sparse_categorical_crossentropy(labels)


loss = compute_loss()
weights = [first, last, *(w for block in blocks for w in block)]
steps = [w - 0.1 * g for w, g in zip(weights, loss.gradient(*weights), strict=True)]
Tensor.realize(loss, *steps)
