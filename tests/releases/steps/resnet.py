"""A training step of a small ResNet: convolutions, batch norms, SGD with momentum."""

from tinygrad import Tensor, nn
from tinygrad.nn.optim import SGD


class Block:
    def __init__(self, before, after, stride):
        self.conv, self.norm = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm(after)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def __call__(self, x):
        y = self.norm(self.conv(x)).relu()
        return (self.norm2(self.conv2(y)) + self.shortcut(x)).relu()


class ResNet:
    def __init__(self):
        self.stem, self.blocks = nn.Conv2d(3, 4, 3, 1, 1), [Block(4, 4, 1), Block(4, 8, 2)]
        self.head = nn.Linear(8, 10)

    def __call__(self, x):
        return self.head(self.stem(x).relu().sequential(self.blocks).mean((2, 3)))


model = ResNet()
optimizer = SGD(nn.state.get_parameters(model), lr=0.1, momentum=0.9)
images, labels = Tensor.rand(2, 3, 8, 8), Tensor.randint(2, high=10)
# from 0.14 on it is the environment variable TRAINING
Tensor.training = True
optimizer.zero_grad()
loss = model(images).sparse_categorical_crossentropy(labels)
loss.backward()
optimizer.step()
