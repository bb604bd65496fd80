"""The programs of `bench.own_programs` as people write them for PyTorch.

They run on its CPU device with as many threads as there are cores. `bench.fusion --torch PYTHON` runs this module by
an interpreter that has torch: it needs nothing else. It answers what `bench.answers` says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from bench.answers import Run, answer_requests
from bench.own_programs import BATCH, HEAD, HEADS, OWN, TOKENS, WIDTH


def weight(*shape: int) -> Any:
    return (torch.rand(*shape) - 0.5) * (2 / shape[-1] ** 0.5)


def without_gradients(function: Callable[..., Any], *inputs: Any) -> Run:
    def run() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return run


# *** attention


def rotate(x: Any) -> Any:
    frequencies = 10000 ** -(torch.arange(0, HEAD, 2) / HEAD)
    angles = torch.arange(TOKENS).reshape(TOKENS, 1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def make_rotary_attention() -> Run:
    weights = [weight(WIDTH, WIDTH) for _ in range(4)]

    def attend(x: Any) -> Any:
        q, k, v = ((x @ w).reshape(BATCH, TOKENS, HEADS, HEAD).transpose(1, 2) for w in weights[:3])
        found = functional.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return found.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH) @ weights[3]

    return without_gradients(attend, weight(BATCH, TOKENS, WIDTH))


class Block(nn.Module):
    """A block of tinygrad.apps.llm's Transformer: 8 heads, 4 of keys and values, rotary embeddings, a gated unit."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(256, n, bias=False) for n in (256, 128, 128))
        self.out, self.gate, self.up = (nn.Linear(256, n, bias=False) for n in (256, 688, 688))
        self.down = nn.Linear(688, 256, bias=False)
        self.first, self.second = nn.RMSNorm(256), nn.RMSNorm(256)
        self.cache = torch.zeros(2, 1, 4, 256, 32)

    def forward(self, x: Any, start: int, angles: Any) -> Any:
        tokens, inside = x.shape[1], self.first(x)
        q, k, v = (made(inside).reshape(1, tokens, -1, 32).transpose(1, 2) for made in (self.q, self.k, self.v))
        q, k = (self.rotate(one, angles[start : start + tokens]) for one in (q, k))
        self.cache[:, :, :, start : start + tokens] = torch.stack((k, v))
        k, v = self.cache[:, :, :, : start + tokens]
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1, enable_gqa=True)
        x = x + self.out(found.transpose(1, 2).reshape(1, tokens, 256))
        inside = self.second(x)
        return x + self.down(functional.silu(self.gate(inside)) * self.up(inside))

    def rotate(self, x: Any, angles: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2048, 256)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.RMSNorm(256), nn.Linear(256, 2048, bias=False)
        self.angles = torch.arange(256).reshape(256, 1) / 10000 ** (torch.arange(0, 32, 2) / 32)

    def forward(self, tokens: Any, start: int) -> Any:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, start, self.angles)
        return self.head(self.norm(x))[:, -1].softmax(-1).argmax(-1, keepdim=True)


def make_llm_prefill() -> Run:
    return without_gradients(Model(), (torch.arange(128) * 37 % 2048).reshape(1, 128), 0)


def make_llm_token() -> Run:
    model = Model()
    without_gradients(model, (torch.arange(100) * 37 % 2048).reshape(1, 100), 0)()
    return without_gradients(model, torch.tensor([[7]]), 100)


def make_gpt_block() -> Run:
    sizes = {"mix": (256, 768), "out": (256, 256), "up": (256, 1024), "down": (1024, 256)}
    layer = {name: weight(*shape).requires_grad_() for name, shape in sizes.items()}
    x = weight(2, 128, 256)

    def norm(given: Any) -> Any:
        return functional.layer_norm(given, (256,))

    def step() -> Any:
        parts = (norm(x) @ layer["mix"]).reshape(2, 128, 3, 8, 32).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        middle = x + found.transpose(1, 2).reshape(2, 128, 256) @ layer["out"]
        out = middle + functional.gelu(norm(middle) @ layer["up"], approximate="tanh") @ layer["down"]
        return torch.autograd.grad(out.square().mean(), list(layer.values()))

    return step


# *** training


class ResidualBlock(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        inside = self.first_norm(self.first(x)).relu()
        return (x + self.second_norm(self.second(inside))).relu()


class ResNet(nn.Module):
    def __init__(self, channels: int = 16):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(ResidualBlock(channels), ResidualBlock(channels))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.norm(self.stem(x)).relu()).mean((2, 3)))


def make_convolutional_net() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 5 * 5, 10),
    )  # fmt: skip


def make_training(model: Any, optimizer: Any, images: Any) -> Run:
    labels = torch.arange(len(images)) % 10

    def step() -> Any:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def make_resnet_step() -> Run:
    model = ResNet()
    return make_training(model, torch.optim.SGD(model.parameters(), lr=0.001), weight(16, 3, 32, 32))


def make_convolutional_step() -> Run:
    model = make_convolutional_net()
    return make_training(model, torch.optim.Adam(model.parameters(), lr=0.001), weight(32, 1, 28, 28))


def make_sample_gradients() -> Run:
    weights = [weight(64, 128), weight(128, 10)]

    def find_loss(given: Any, x: Any) -> Any:
        return ((x @ given[0]).tanh() @ given[1]).square().mean()

    per_sample = torch.func.vmap(torch.func.grad(find_loss), in_dims=(None, 0))
    x = weight(64, 64)
    return lambda: per_sample(weights, x)


# *** optimal control: torch has no sparse Jacobian; eight directions are what the colours of this one come to

STEPS, WHEELBASE, COLOURS = 200, 2.5, 8


def move(state: Any, controls: Any) -> Any:
    _, _, heading, speed, steering = state
    acceleration, steering_rate = controls
    turn = speed * steering.tan() / WHEELBASE
    return torch.stack([speed * heading.cos(), speed * heading.sin(), turn, acceleration, steering_rate])


def find_gap(stage: Any, next_state: Any, dt: Any) -> Any:
    state, controls = stage[:5], stage[5:]
    middle = state + dt / 2 * move(state, controls)
    return next_state - (state + dt * move(middle, controls))


def find_gaps(z: Any) -> Any:
    stages = functional.pad(z[:-1], (0, 2)).reshape(STEPS + 1, 7)
    return torch.func.vmap(find_gap, in_dims=(0, 0, None))(stages[:-1], stages[1:, :5], z[-1] / STEPS).flatten()


def make_bicycle() -> Run:
    z = weight(7 * (STEPS + 1) - 2 + 1)
    directions = weight(COLOURS, len(z))
    push = torch.func.vmap(lambda direction: torch.func.jvp(find_gaps, (z,), (direction,))[1])
    return without_gradients(push, directions)


# *** matmuls of small numbers


def make_int8_matmul() -> Run:
    packed, scale = torch.randint(-127, 127, (512, 512), dtype=torch.int8), weight(512)
    return without_gradients(lambda x: x @ (packed.float() * scale), weight(128, 512))


def make_half_matmul() -> Run:
    a, b = weight(256, 512).half(), weight(512, 512).half()
    return without_gradients(lambda x: (x @ b).relu(), a)


def prepare(name: str) -> tuple[Run, int]:
    """Returns what runs a program once. What torch launches are no kernels: none are counted."""
    torch.manual_seed(0)
    # the programs have the names of tinygrad's
    run = globals()[OWN[name].__name__]()
    for _ in range(3):
        run()
    return run, 0


if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count() or 1)
    answer_requests(prepare)
