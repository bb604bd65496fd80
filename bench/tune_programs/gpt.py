# Two layers of a small GPT: attention with a causal mask, and a feed-forward block, each after a norm.
from tinygrad import Tensor

TOKENS, WIDTH, HEADS = 128, 64, 4


def data(*shape: int, step: int) -> Tensor:
    size = 1
    for n in shape:
        size *= n
    return Tensor([(i * step % 23 - 11) / 60 for i in range(size)]).reshape(shape)


class Layer:
    def __init__(self, step: int) -> None:
        self.qkv, self.out = data(WIDTH, 3 * WIDTH, step=step), data(WIDTH, WIDTH, step=step + 2)
        self.up, self.down = data(WIDTH, 4 * WIDTH, step=step + 4), data(4 * WIDTH, WIDTH, step=step + 6)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.reshape(TOKENS, HEADS, -1).transpose(0, 1) for part in (x @ self.qkv).chunk(3, dim=-1))
        mask = Tensor.ones(TOKENS, TOKENS).tril() > 0
        weights = mask.where((q @ k.transpose(-2, -1)) / 3, -1e9).softmax()
        return (weights @ v).transpose(0, 1).reshape(TOKENS, WIDTH) @ self.out

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attend(x.layernorm())
        hidden = x.layernorm() @ self.up
        return x + (hidden * (1 + (0.8 * (hidden + 0.045 * hidden**3)).tanh())) @ self.down


x = data(TOKENS, WIDTH, step=3)
for layer in [Layer(5), Layer(7)]:
    x = layer(x)
out = x.realize()
