# A selective scan in the manner of Mamba: the decay of each step, and two cumulative sums over the tokens.
from tinygrad import Tensor

TOKENS, WIDTH, STATES = 128, 32, 16


def data(*shape: int, step: int) -> Tensor:
    size = 1
    for n in shape:
        size *= n
    return Tensor([i * step % 19 / 19 - 0.4 for i in range(size)]).reshape(shape)


inputs, decay = data(1, TOKENS, WIDTH, step=3), -data(WIDTH, STATES, step=7).exp()
w_time, w_in, w_out = data(WIDTH, WIDTH, step=5), data(WIDTH, STATES, step=11), data(WIDTH, STATES, step=13)


def scan(x: Tensor) -> Tensor:
    dt = (x @ w_time).softplus()
    before = (dt.unsqueeze(-1) * decay).cumsum(1)
    value = (dt * x).unsqueeze(-1) * (x @ w_in).unsqueeze(2)
    state = before.clip(-30, 0).exp() * (value * (-before.clip(-30, 0)).exp()).cumsum(1)
    return (state * (x @ w_out).unsqueeze(2)).sum(-1)


out = scan(inputs).realize()
