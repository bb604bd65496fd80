"""Programs for which nobody had tuned the patches, one step each, 5 to 500 ms on two cores.

Name -> what makes a function of no arguments that runs one call, compiled. The data are seeded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tinygrad import Tensor, nn

from bench.answers import Run
from bench.own_programs import compile_calls

NUMBERS = np.random.default_rng(0)


def data(*shape: int, scale: float = 1.0) -> Tensor:
    return Tensor((NUMBERS.standard_normal(shape) * scale).astype(np.float32)).realize()


def weight(*shape: int) -> Tensor:
    return data(*shape, scale=1 / shape[0] ** 0.5)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return Tensor(NUMBERS.uniform(low, high, shape).astype(np.float32)).realize()


def whole(*shape: int, high: int) -> Tensor:
    """Returns whole numbers from 0 to below `high`."""
    return Tensor(NUMBERS.integers(0, high, shape).astype(np.int32)).realize()


def start(model: Any) -> Any:
    """Gives a model seeded weights, and returns it."""
    for tensor in nn.state.get_parameters(model):
        if tensor.ndim < 2:
            tensor.replace((tensor + 0).contiguous().realize())
        else:
            shape = tuple(map(int, tensor.shape))
            tensor.replace(data(*shape, scale=1 / math.prod(shape[1:]) ** 0.5))
    return model


# *** sequences


def make_mamba_scan() -> Run:
    width, states, steps = 64, 16, 128
    decay = uniform(width, states, low=-1, high=-0.1)
    to_b, to_c, to_step = weight(width, states), weight(width, states), weight(width, width)
    way_in, way_out = weight(width, 2 * width), weight(width, width)

    def scan(u: Tensor) -> Tensor:
        x, gate = (u @ way_in).chunk(2, dim=-1)
        x = x.silu()
        size = (x @ to_step).softplus()
        total = (size.unsqueeze(-1) * decay).cumsum(1).clip(-30, 0)
        added = (size * x).unsqueeze(-1) * (x @ to_b).unsqueeze(2)
        state = total.exp() * (added * (-total).exp()).cumsum(1)
        return ((state * (x @ to_c).unsqueeze(2)).sum(-1) * gate.silu()) @ way_out

    return compile_calls(scan, data(2, steps, width))


def make_lstm() -> Run:
    cell, out = start(nn.LSTMCell(64, 128)), start(nn.Linear(128, 50))

    def run(x: Tensor) -> Tensor:
        state, found = None, []
        for step in range(24):
            state = cell(x[step], state)
            found.append(state[0])
        return out(Tensor.stack(*found)).log_softmax()

    return compile_calls(run, data(24, 16, 64))


def make_sliding_window() -> Run:
    steps, width, window = 512, 32, 64

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        i = Tensor.arange(steps)
        mask = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < window)
        scores = (q @ k.transpose(-2, -1)) * width**-0.5
        return mask.where(scores, float("-inf")).softmax() @ v

    return compile_calls(attend, *(data(1, 4, steps, width) for _ in range(3)))


def make_bert() -> Run:
    words, width, steps, heads = 2000, 128, 64, 4
    table, places = data(words, width, scale=0.1), data(steps, width, scale=0.1)
    sizes = dict.fromkeys("qkvo", (width, width)) | {"u": (width, 4 * width), "d": (4 * width, width)}
    layers = [{name: weight(*size) for name, size in sizes.items()} for _ in range(2)]

    def step(text: Tensor, right: Tensor, mask: Tensor) -> list[Tensor]:
        x = (table[text] + places).layernorm()
        for layer in layers:
            q, k, v = ((x @ layer[n]).reshape(4, steps, heads, width // heads).transpose(1, 2) for n in "qkv")
            found = ((q @ k.transpose(-1, -2)) * (width // heads) ** -0.5).softmax().dropout(0.1) @ v
            x = (x + found.transpose(1, 2).reshape(4, steps, width) @ layer["o"]).layernorm()
            x = (x + (x @ layer["u"]).gelu() @ layer["d"]).layernorm()
        scores = (x @ table.T).log_softmax()
        loss = -(scores.gather(2, right.unsqueeze(2)).squeeze(2) * mask).sum() / mask.sum()
        return [loss, *loss.gradient(table, places, *(w for layer in layers for w in layer.values()))]

    masked = (uniform(4, steps) < 0.15).float().realize()
    return compile_calls(step, whole(4, steps, high=words), whole(4, steps, high=words), masked)


def make_moe() -> Run:
    experts, width, inner = 8, 128, 256
    gate, up = weight(width, experts), data(experts, width, inner, scale=0.09)
    down = data(experts, inner, width, scale=0.06)

    def mix(x: Tensor) -> list[Tensor]:
        shares, chosen = (x @ gate).softmax().topk(2)
        shares = shares / shares.sum(-1, keepdim=True)
        inside = (x[:, None, None, :] @ up[chosen]).silu()
        found = (inside @ down[chosen]).squeeze(2)
        load = chosen.one_hot(experts).sum((0, 1)).float() / 32
        return [x + (found * shares.unsqueeze(-1)).sum(1), (load * (x @ gate).softmax().mean(0)).sum() * experts]

    return compile_calls(mix, data(32, width))


def make_beam_step() -> Run:
    words, width, beams = 512, 128, 4
    head, table = weight(width, words), data(words, width)

    def step(state: Tensor, scores: Tensor, text: Tensor) -> list[Tensor]:
        found = (state @ head).log_softmax() + scores.unsqueeze(1)
        best, place = found.flatten().topk(beams)
        beam, word = place // words, place % words
        longer = text[beam].cat(word.unsqueeze(1).cast(text.dtype), dim=1)
        return [best, longer, state[beam] + table[word]]

    return compile_calls(step, data(beams, width), data(beams), whole(beams, 16, high=words))


def make_top_p() -> Run:
    def pick(scores: Tensor, chances: Tensor) -> list[Tensor]:
        shares, place = (scores / 0.8).softmax().sort(descending=True)
        shares = ((shares.cumsum(-1) - shares) < 0.9).where(shares, 0)
        shares = shares / shares.sum(-1, keepdim=True)
        chosen = (shares.cumsum(-1) < chances.unsqueeze(1)).sum(-1)
        return [place.gather(1, chosen.unsqueeze(1)), shares]

    return compile_calls(pick, data(4, 512, scale=3), uniform(4))


def make_logcumsumexp() -> Run:
    def step(x: Tensor) -> list[Tensor]:
        found = x.logcumsumexp(1)
        return [found, (x - found).exp().mean(1), found.cummax(1)]

    return compile_calls(step, data(64, 512))


# *** images and graphs


def make_swin() -> Run:
    batch, size, width, heads, window = 2, 32, 96, 3, 8
    norm, qkv, out = start(nn.LayerNorm(width)), start(nn.Linear(width, 3 * width)), start(nn.Linear(width, width))
    table, across = data((2 * window - 1) ** 2, heads), size // window

    def attend(x: Tensor) -> Tensor:
        y = norm(x).roll((-4, -4), (1, 2)).reshape(batch, across, window, across, window, width)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, width)
        q, k, v = qkv(y).reshape(-1, window * window, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        i = Tensor.arange(window * window)
        rows, columns = i // window, i % window
        place = (rows[:, None] - rows[None] + window - 1) * (2 * window - 1)
        bias = table[place + columns[:, None] - columns[None] + window - 1].permute(2, 0, 1)
        found = ((q @ k.transpose(-2, -1)) * (width // heads) ** -0.5 + bias).softmax() @ v
        y = out(found.transpose(1, 2).reshape(-1, window * window, width))
        y = y.reshape(batch, across, across, window, window, width).permute(0, 1, 3, 2, 4, 5)
        return x + y.reshape(batch, size, size, width).roll((4, 4), (1, 2))

    return compile_calls(attend, data(batch, size, size, width))


def make_norms() -> Run:
    group, instance = start(nn.GroupNorm(8, 32)), start(nn.InstanceNorm(32))
    layer, kernel = start(nn.LayerNorm2d(32)), data(32, 32, 3, 3, scale=0.06)

    def step(x: Tensor) -> Tensor:
        return x + layer(instance(group(x).silu().conv2d(kernel, padding=1)).relu()).gelu()

    return compile_calls(step, data(4, 32, 48, 48))


class Residual:
    def __init__(self, given: int, made: int):
        self.norm, self.first = nn.GroupNorm(8, given), nn.Conv2d(given, made, 3, padding=1)
        self.inner_norm, self.second = nn.GroupNorm(8, made), nn.Conv2d(made, made, 3, padding=1)
        self.time, self.skip = nn.Linear(64, made), nn.Conv2d(given, made, 1)

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        inside = self.first(self.norm(x).silu()) + self.time(time.silu())[:, :, None, None]
        return self.second(self.inner_norm(inside).silu()) + self.skip(x)


class UNet:
    def __init__(self) -> None:
        self.first, self.last, self.norm = (
            nn.Conv2d(3, 16, 3, padding=1),
            nn.Conv2d(16, 3, 3, padding=1),
            nn.GroupNorm(8, 16),
        )
        self.down, self.deeper, self.middle = Residual(16, 16), Residual(16, 32), Residual(32, 32)
        self.up, self.higher = Residual(64, 16), Residual(32, 16)
        self.time, self.more_time = nn.Linear(32, 64), nn.Linear(64, 64)

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        waves = time[:, None] * (-9.2 * Tensor.arange(16) / 16).exp()
        seen = self.more_time(self.time(waves.sin().cat(waves.cos(), dim=-1)).silu())
        high = self.down(self.first(x), seen)
        low = self.deeper(half_size(high), seen)
        y = self.middle(half_size(low), seen).interpolate((16, 16), mode="nearest").cat(low, dim=1)
        y = self.up(y, seen).interpolate((32, 32), mode="nearest").cat(high, dim=1)
        return self.last(self.norm(self.higher(y, seen)).silu())


def half_size(x: Tensor) -> Tensor:
    return x.avg_pool2d((2, 2))


def make_unet() -> Run:
    net = start(UNet())
    optimizer = nn.optim.AdamW(nn.state.get_parameters(net), lr=1e-3)

    def step(x: Tensor, time: Tensor, noise: Tensor) -> list[Tensor]:
        with Tensor.train():
            optimizer.zero_grad()
            kept = (time * 1.57).cos().square()[:, None, None, None]
            seen = net(kept.sqrt() * x + (1 - kept).sqrt() * noise, time * 1000)
            loss = (seen - noise).square().mean().backward()
            return [loss, *optimizer.schedule_step()]

    return compile_calls(step, data(4, 3, 32, 32), uniform(4), data(4, 3, 32, 32))


class Vae:
    def __init__(self) -> None:
        self.encode, self.mean, self.spread = nn.Linear(784, 256), nn.Linear(256, 16), nn.Linear(256, 16)
        self.first, self.second = nn.Linear(16, 256), nn.Linear(256, 784)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inside = self.encode(x).relu()
        mean, spread = self.mean(inside), self.spread(inside)
        z = mean + (spread / 2).exp() * Tensor.randn(*mean.shape)
        return self.second(self.first(z).relu()), mean, spread


def make_vae() -> Run:
    net = start(Vae())
    optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=1e-3)

    def step(x: Tensor) -> list[Tensor]:
        with Tensor.train():
            optimizer.zero_grad()
            y, mean, spread = net(x)
            made = (y.relu() - y * x + (1 + (-y.abs()).exp()).log()).sum(-1).mean()
            prior = (-0.5 * (1 + spread - mean.square() - spread.exp())).sum(-1).mean()
            return [(made + prior).backward(), made, prior, *optimizer.schedule_step()]

    return compile_calls(step, uniform(64, 784))


class Layers:
    """Linear layers with leaky ReLUs between them."""

    def __init__(self, *widths: int):
        self.layers = [nn.Linear(given, made) for given, made in itertools.pairwise(widths)]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).leaky_relu(0.2)
        return self.layers[-1](x)


def make_gan() -> Run:
    """A step of the discriminator, then one of the generator."""
    generator, judge = start(Layers(32, 128, 784)), start(Layers(784, 128, 1))
    optimizers = [nn.optim.Adam(nn.state.get_parameters(net), lr=2e-4, b1=0.5) for net in (generator, judge)]

    def find_loss(scores: Tensor, is_real: bool) -> Tensor:
        return scores.binary_crossentropy_logits(Tensor.full(scores.shape, float(is_real)))

    def step(real: Tensor, noise: Tensor) -> list[Tensor]:
        losses = []
        with Tensor.train():
            for optimizer in reversed(optimizers):
                optimizer.zero_grad()
                made = generator(noise).tanh()
                if optimizer is optimizers[0]:
                    loss = find_loss(judge(made), True)
                else:
                    loss = find_loss(judge(real), True) + find_loss(judge(made.detach()), False)
                losses.append(loss.backward())
                losses[-1].realize(*optimizer.schedule_step())
        return losses

    return compile_calls(step, uniform(64, 784, low=-1), data(64, 32))


def make_gnn() -> Run:
    nodes, edges, width = 512, 2048, 32
    first, second, attention = weight(width, width), weight(width, width), weight(2 * width, 1)

    def pass_on(x: Tensor, source: Tensor, target: Tensor, layer: Tensor) -> Tensor:
        y = x @ layer
        share = (y[source].cat(y[target], dim=1) @ attention).squeeze(1).leaky_relu(0.2).exp()
        total = Tensor.zeros(nodes).scatter_reduce(0, target, share, reduce="sum")
        sent = y[source] * (share / (total[target] + 1e-9)).unsqueeze(1)
        to = target.unsqueeze(1).expand(edges, width)
        return Tensor.zeros(nodes, width).scatter_reduce(0, to, sent, reduce="sum").elu()

    def step(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        return pass_on(pass_on(x, source, target, first), source, target, second)

    return compile_calls(step, data(nodes, width), whole(edges, high=nodes), whole(edges, high=nodes))


# *** numbers


def make_cholesky() -> Run:
    size, count = 5, 2048

    def solve(a: Tensor, b: Tensor) -> list[Tensor]:
        full = a @ a.transpose(1, 2) + size * Tensor.eye(size)
        lower: dict[tuple[int, int], Tensor] = {}
        for i in range(size):
            for j in range(i + 1):
                left = full[:, i, j] - sum((lower[i, k] * lower[j, k] for k in range(j)), start=Tensor.zeros(count))
                lower[i, j] = left.sqrt() if i == j else left / lower[j, j]
        found: list[Tensor] = []
        for i in range(size):
            known = sum((lower[i, k] * found[k] for k in range(i)), start=Tensor.zeros(count))
            found.append((b[:, i] - known) / lower[i, i])
        diagonal = (lower[i, i].log() for i in range(size))
        return [Tensor.stack(*found, dim=1), 2 * sum(diagonal, start=Tensor.zeros(count))]

    return compile_calls(solve, data(count, size, size), data(count, size))


def make_gauss() -> Run:
    size, count = 8, 64

    def solve(a: Tensor, b: Tensor) -> Tensor:
        rows = [[*(a[:, i, j] for j in range(size)), b[:, i]] for i in range(size)]
        for i in range(size):
            first = rows[i][i]
            rows[i] = [one / first for one in rows[i]]
            for k in (k for k in range(size) if k != i):
                factor = rows[k][i]
                rows[k] = [one - factor * other for one, other in zip(rows[k], rows[i], strict=True)]
        return Tensor.stack(*(row[size] for row in rows), dim=1)

    return compile_calls(solve, (data(count, size, size) + 4 * Tensor.eye(size)).realize(), data(count, size))


def make_black_scholes() -> Run:
    def normal(x: Tensor) -> Tensor:
        return 0.5 * (1 + (x / 2**0.5).erf())

    def price(spot: Tensor, strike: Tensor, years: Tensor, spread: Tensor) -> list[Tensor]:
        rate = 0.02
        d1 = ((spot / strike).log() + (rate + spread * spread / 2) * years) / (spread * years.sqrt())
        d2, discounted = d1 - spread * years.sqrt(), strike * (-rate * years).exp()
        call = spot * normal(d1) - discounted * normal(d2)
        return [call, call - spot + discounted, *call.sum().gradient(spot, spread)]

    bounds = ((80, 120), (80, 120), (0.1, 2), (0.1, 0.5))
    return compile_calls(price, *(uniform(400_000, low=low, high=high) for low, high in bounds))


def make_sinkhorn() -> Run:
    def transport(x: Tensor, y: Tensor) -> list[Tensor]:
        cost = (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1)
        f, g = Tensor.zeros(256), Tensor.zeros(256)
        for _ in range(6):
            f = -0.5 * ((g.unsqueeze(0) - cost) / 0.5).logsumexp(1)
            g = -0.5 * ((f.unsqueeze(1) - cost) / 0.5).logsumexp(0)
        plan = ((f.unsqueeze(1) + g.unsqueeze(0) - cost) / 0.5).exp()
        return [(plan * cost).sum(), plan.sum(1), f, g]

    return compile_calls(transport, data(256, 8), data(256, 8))


def make_kmeans() -> Run:
    def cluster(x: Tensor, centers: Tensor) -> list[Tensor]:
        far, nearest = x, x
        for _ in range(3):
            far = (x.unsqueeze(1) - centers.unsqueeze(0)).square().sum(-1)
            nearest = far.argmin(1)
            chosen = nearest.one_hot(16).float()
            centers = (chosen.T @ x) / chosen.sum(0).maximum(1).unsqueeze(1)
        return [centers, nearest, far.min(1).mean()]

    return compile_calls(cluster, data(2048, 16), data(16, 16))


def make_triplet() -> Run:
    table = weight(64, 32)

    def step(x: Tensor, label: Tensor) -> list[Tensor]:
        y = x @ table
        far = (y.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1)
        same = label.unsqueeze(1) == label.unsqueeze(0)
        farthest, nearest = same.where(far, -1e9).max(1), same.where(1e9, far).min(1)
        loss = ((farthest + 1e-6).sqrt() - (nearest + 1e-6).sqrt() + 0.3).relu().mean()
        return [loss, loss.gradient(table)[0], far]

    return compile_calls(step, data(256, 64), whole(256, high=16))


def make_smooth_loss() -> Run:
    table, x = weight(128, 4096), data(256, 128)

    def step(x: Tensor, label: Tensor) -> list[Tensor]:
        scores = x @ table
        loss = scores.sparse_categorical_crossentropy(label, label_smoothing=0.1)
        total = loss + scores.logsumexp(-1).square().mean() * 1e-4
        return [total, *total.gradient(table, x), (scores.argmax(-1) == label).float().mean()]

    return compile_calls(step, x, whole(256, high=4096))


UNSEEN: dict[str, Callable[[], Run]] = {
    "mamba scan": make_mamba_scan,
    "LSTM": make_lstm,
    "sliding window": make_sliding_window,
    "BERT, training": make_bert,
    "mixture of experts": make_moe,
    "beam search": make_beam_step,
    "top-p sampling": make_top_p,
    "logcumsumexp": make_logcumsumexp,
    "Swin attention": make_swin,
    "norms of images": make_norms,
    "UNet, training": make_unet,
    "VAE, training": make_vae,
    "GAN, training": make_gan,
    "graph attention": make_gnn,
    "Cholesky": make_cholesky,
    "Gauss": make_gauss,
    "Black-Scholes": make_black_scholes,
    "Sinkhorn": make_sinkhorn,
    "k-means": make_kmeans,
    "triplet loss": make_triplet,
    "smoothed loss": make_smooth_loss,
}
