"""Programs of neural networks: norms, attention, convolutions, losses, optimizers."""

from __future__ import annotations

from typing import Any

from stock_registry import FLOATS, INTS, MATRICES, data, program
from tinygrad import Tensor, dtypes, nn
from tinygrad.helpers import Context
from tinygrad.nn.optim import LAMB, SGD, Adam, AdamW, Muon

# *** softmax, norms, attention


@program(*((shape, axis) for shape in MATRICES for axis in (0, 1)))
def softmax(shape: tuple[int, ...], axis: int) -> Any:
    x = data(*shape)
    return x.softmax(axis), x.log_softmax(axis), x.logsumexp(axis), (x * 2).softmax(axis).sum(axis)


@program(*FLOATS)
def softmax_dtypes(dtype: Any) -> Any:
    x = data(4, 8, 8, dtype=dtype)
    return x.softmax(-1), x.softmax(1, dtype=dtypes.float32), x.softmax(2).softmax(1)


@program(*((shape, dtype) for shape in ((4, 16), (2, 8, 32)) for dtype in FLOATS[:3]))
def norms(shape: tuple[int, ...], dtype: Any) -> Any:
    x = data(*shape, dtype=dtype)
    rms, layer = nn.RMSNorm(shape[-1]), nn.LayerNorm(shape[-1])
    return rms(x), layer(x), x.layernorm(), x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@program((True,), (False,))
def image_norms(training: bool) -> Any:
    x = data(2, 8, 6, 6)
    with Tensor.train(training):
        return nn.BatchNorm(8)(x), nn.GroupNorm(2, 8)(x).relu(), nn.InstanceNorm(8)(x), nn.LayerNorm2d(8)(x)


@program((1, 1, 8, 4), (2, 4, 16, 8), (2, 2, 33, 16))
def attention(batch: int, heads: int, length: int, width: int) -> Any:
    q, k, v = (data(batch, heads, length, width) for _ in range(3))
    mask = data(length, length, dtype=dtypes.bool)
    scores = (q @ k.transpose(-2, -1)) / width**0.5
    return (
        q.scaled_dot_product_attention(k, v),
        q.scaled_dot_product_attention(k, v, is_causal=True),
        q.scaled_dot_product_attention(k, v, attn_mask=mask),
        scores.softmax(-1) @ v,
    )


@program((True,), (False,))
def attention_backward(causal: bool) -> Any:
    q, k, v = (data(2, 2, 8, 4).requires_grad_() for _ in range(3))
    q.scaled_dot_product_attention(k, v, is_causal=causal).square().mean().backward()
    return q.grad, k.grad, v.grad


class Block:
    """A transformer block: attention and a gated feed-forward, each with its norm in front."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.gate, self.up, self.down = (
            nn.Linear(width, 2 * width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )
        self.first, self.second = nn.RMSNorm(width), nn.LayerNorm(width)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).chunk(3)
        mixed = q[0].scaled_dot_product_attention(k[0], v[0], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.second(x)
        return x + self.down(self.gate(y).silu() * self.up(y))


@program((1, 1), (2, 2))
def transformer(batch: int, layers: int) -> Any:
    x = data(batch, 8, 16)
    for _ in range(layers):
        x = Block(16, 2)(x)
    return x, x[:, -1].log_softmax(), x.argmax(-1)


@program(1)
def transformer_training(layers: int) -> Any:
    table, blocks, head = nn.Embedding(11, 16), [Block(16, 2) for _ in range(layers)], nn.Linear(16, 11)
    tokens = data(2, 9, dtype=dtypes.int32)
    optimizer = AdamW(nn.state.get_parameters([table, blocks, head]), lr=1e-3)
    with Tensor.train():
        logits = head(table(tokens[:, :-1]).sequential(blocks))
        loss = logits.sparse_categorical_crossentropy(tokens[:, 1:])
        loss.backward()
        optimizer.step()
    return loss


# *** matrices, convolutions, pools


@program((4, 4, 4), (1, 16, 3), (32, 64, 16), (5, 1, 5))
def matmuls(n: int, k: int, m: int) -> Any:
    a, b, c = data(n, k), data(k, m), data(m, n)
    return a @ b, (a @ b).relu() @ c, a.T @ a, (a @ b + c.T).sum(0), a.linear(b, data(m)).tanh()


@program(*FLOATS, *INTS)
def matmul_dtypes(dtype: Any) -> Any:
    a, b = data(8, 8, dtype=dtype), data(8, 8, dtype=dtype)
    return a @ b, a.matmul(b, dtype=dtypes.float32), a.cast(dtypes.int32) @ b.cast(dtypes.int32)


@program(*((stride, padding, groups) for stride in (1, 2) for padding in (0, 1) for groups in (1, 4)))
def convolutions(stride: int, padding: int, groups: int) -> Any:
    x, w, bias = data(2, 4, 9, 9), data(8, 4 // groups, 3, 3), data(8)
    return x.conv2d(w, bias, groups, stride, 1, padding), x.conv2d(w, None, groups, stride, 2, padding).relu().max(1)


@program((1, False), (4, False), (4, True))
def convolutional_net(batch: int, training: bool) -> Any:
    layers: list[Any] = [nn.Conv2d(1, 4, 3), Tensor.relu, nn.BatchNorm(4), Tensor.max_pool2d, nn.Conv2d(4, 8, 3)]
    layers += [Tensor.relu, lambda x: x.flatten(1), nn.Linear(8 * 4 * 4, 10)]
    with Tensor.train(training):
        weights = [p.requires_grad_() for p in nn.state.get_parameters(layers) if p.requires_grad is not False]
        out = data(batch, 1, 14, 14).sequential(layers)
        if not training:
            return out
        out.sparse_categorical_crossentropy(data(batch, dtype=dtypes.int32)).backward()
        return [weight.grad for weight in weights]


@program(True)
def winograd(backward: bool) -> Any:
    with Context(WINO=1):
        x, w = data(1, 4, 8, 8).requires_grad_(), data(4, 4, 3, 3).requires_grad_()
        out = x.conv2d(w)
        if backward:
            out.sum().backward()
        return out, w.grad if backward else out + 1


# *** gradients and optimizers


@program(*((shape, name) for shape in ((3, 4), (8, 2)) for name in ("softmax", "cumsum", "max", "std", "gelu", "sort")))
def gradients(shape: tuple[int, ...], name: str) -> Any:
    x = data(*shape).requires_grad_()
    out = {
        "softmax": lambda: x.softmax(1),
        "cumsum": lambda: x.cumsum(0),
        "max": lambda: x.max(1) * x.max(0).sum(),
        "std": lambda: x.std(0),
        "gelu": lambda: x.gelu().flip(1).pad((1, 1)),
        "sort": lambda: x.sort(1)[0],
    }[name]()
    out.square().sum().backward()
    return x.grad, out


@program(*((kind, False) for kind in ("momentum", "adamw", "lamb", "muon")), ("sgd", True), ("adam", True))
def optimizers(kind: str, fused: Any) -> None:
    layers = [nn.Linear(6, 8), Tensor.relu, nn.Linear(8, 3)]
    make = {
        "sgd": lambda ps: SGD(ps, 0.1, fused=fused),
        "momentum": lambda ps: SGD(ps, 0.1, 0.9, 0.01, True, fused=fused),
        "adam": lambda ps: Adam(ps, fused=fused),
        "adamw": lambda ps: AdamW(ps, fused=fused),
        "lamb": lambda ps: LAMB(ps, fused=fused),
        "muon": lambda ps: Muon(ps),
    }[kind]
    parameters = nn.state.get_parameters(layers)
    optimizer = make([p for p in parameters if kind != "muon" or len(p.shape) == 2])
    with Tensor.train():
        for _ in range(2):
            optimizer.zero_grad()
            data(5, 6).sequential(layers).cross_entropy(data(5, dtype=dtypes.int32)).backward()
            optimizer.step()


@program(1, 3)
def recurrent(steps: int) -> Any:
    cell, state = nn.LSTMCell(4, 6), None
    for _ in range(steps):
        state = cell(data(2, 4), state)
    return state
