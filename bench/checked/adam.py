"""A convolutional net that is trained: five steps of Adam, which assign to every weight and to its two moments."""

from tinygrad import Tensor, nn

Tensor.manual_seed(1)


class Net:
    def __init__(self) -> None:
        self.layers = [nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3), nn.Conv2d(32, 32, 3)]
        self.last = nn.Linear(32 * 9, 10)

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers[:2]:
            pooled = layer(x).relu().max_pool2d()
            assert isinstance(pooled, Tensor)
            x = pooled
        return self.last(self.layers[2](x).relu().flatten(1))


net = Net()
images, labels = Tensor.rand(32, 1, 28, 28).realize(), Tensor.randint(32, high=10).realize()
optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.001)
with Tensor.train():
    for _ in range(5):
        optimizer.zero_grad()
        loss = net(images).sparse_categorical_crossentropy(labels).backward()
        optimizer.step()
        print(loss.item())
