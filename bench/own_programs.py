"""Programs as people write them, at sizes that take milliseconds.

Name -> what makes a function of no arguments that runs one call, compiled.

Measured by `bench.fusion` beside its patterns: a schedule is right when these are never slower for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.answers import Run

BATCH, TOKENS, WIDTH, HEADS = 1, 256, 512, 8
HEAD = WIDTH // HEADS


def weight(*shape: Any, dtype: str | None = None) -> Any:
    """Returns a small random tensor that has memory."""
    from tinygrad import Tensor

    made = (Tensor.rand(*shape) - 0.5) * (2 / shape[-1] ** 0.5)
    return (made if dtype is None else made.cast(dtype)).contiguous().realize()


def compile_calls(function: Callable[..., Any], *inputs: Any) -> Run:
    """Returns what calls a function on inputs, under TinyJit. The function returns what is to be realized."""
    from tinygrad import Tensor, TinyJit

    def realize(*given: Any) -> Any:
        made = function(*given)
        Tensor.realize(*made) if isinstance(made, (list, tuple)) else made.realize()
        return made

    jitted = TinyJit(realize)
    return lambda: jitted(*inputs)


# *** attention


def rotate(x: Any) -> Any:
    """Rotary embeddings, written where they are used."""
    from tinygrad import Tensor

    frequencies = 10000 ** -(Tensor.arange(0, HEAD, 2).float() / HEAD)
    angles = Tensor.arange(TOKENS).float().reshape(TOKENS, 1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return (first * cos - second * sin).cat(first * sin + second * cos, dim=-1)


def make_rotary_attention() -> Run:
    weights = [weight(WIDTH, WIDTH) for _ in range(4)]

    def attend(x: Any) -> Any:
        q, k, v = ((x @ w).reshape(BATCH, TOKENS, HEADS, HEAD).transpose(1, 2) for w in weights[:3])
        found = rotate(q).scaled_dot_product_attention(rotate(k), v, is_causal=True)
        return found.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH) @ weights[3]

    return compile_calls(attend, weight(BATCH, TOKENS, WIDTH))


def make_llm() -> Any:
    from tinygrad import nn
    from tinygrad.apps.llm import Transformer

    model = Transformer(
        num_blocks=2,
        dim=256,
        hidden_dim=688,
        n_heads=8,
        n_kv_heads=4,
        norm_eps=1e-5,
        vocab_size=2048,
        head_dim=32,
        rope_theta=10000.0,
        max_context=256,
    )
    for tensor in nn.state.get_parameters(model):
        tensor.replace(weight(*tensor.shape))
    return model


def make_llm_prefill() -> Run:
    from tinygrad import Tensor

    model = make_llm()
    tokens = ((Tensor.arange(128) * 37) % 2048).reshape(1, 128).realize()
    # it realizes its cache itself, so that TinyJit takes it as it is
    model(tokens).realize()
    return compile_calls(lambda given: model.forward(given, 0), tokens)


def make_llm_token() -> Run:
    from tinygrad import Tensor, UOp

    model = make_llm()
    model(((Tensor.arange(100) * 37) % 2048).reshape(1, 100)).realize()
    token, position = Tensor([[7]]).realize(), UOp.variable("start_pos", 1, 255).bind(100)
    return lambda: model(token, position).realize()


def make_gpt_block() -> Run:
    sizes = {"mix": (256, 768), "out": (256, 256), "up": (256, 1024), "down": (1024, 256)}
    layer = {name: weight(*shape) for name, shape in sizes.items()}

    def step(x: Any) -> Any:
        parts = (x.layernorm() @ layer["mix"]).reshape(2, 128, 3, 8, 32).permute(2, 0, 3, 1, 4)
        found = parts[0].scaled_dot_product_attention(parts[1], parts[2], is_causal=True)
        middle = x + found.transpose(1, 2).reshape(2, 128, 256) @ layer["out"]
        out = middle + (middle.layernorm() @ layer["up"]).gelu() @ layer["down"]
        loss = out.square().mean()
        return [loss, *loss.gradient(*layer.values())]

    return compile_calls(step, weight(2, 128, 256))


# *** training


class ResidualBlock:
    def __init__(self, channels: int):
        from tinygrad import nn

        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm(channels), nn.BatchNorm(channels)

    def __call__(self, x: Any) -> Any:
        inside = self.first_norm(self.first(x)).relu()
        return (x + self.second_norm(self.second(inside))).relu()


class ResNet:
    def __init__(self, channels: int = 16):
        from tinygrad import nn

        self.stem, self.norm = nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm(channels)
        self.blocks = [ResidualBlock(channels), ResidualBlock(channels)]
        self.head = nn.Linear(channels, 10)

    def __call__(self, x: Any) -> Any:
        x = self.norm(self.stem(x)).relu()
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class ConvolutionalNet:
    def __init__(self) -> None:
        from tinygrad import nn

        self.first, self.second = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3)
        self.head = nn.Linear(32 * 5 * 5, 10)

    def __call__(self, x: Any) -> Any:
        for convolution in (self.first, self.second):
            # Any: asked for indices, it would return two tensors
            pooled: Any = convolution(x).relu().max_pool2d()
            x = pooled
        return self.head(x.flatten(1))


def make_training(model: Any, optimizer: Any, images: Any, labels: Any) -> Run:
    from tinygrad import Tensor, TinyJit

    @TinyJit
    def step() -> Any:
        with Tensor.train():
            optimizer.zero_grad()
            loss = model(images).sparse_categorical_crossentropy(labels).backward()
            return loss.realize(*optimizer.schedule_step())

    return step


def make_labels(count: int) -> Any:
    from tinygrad import Tensor

    return Tensor([i % 10 for i in range(count)]).realize()


def make_resnet_step() -> Run:
    from tinygrad import nn

    model = ResNet()
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.001)
    return make_training(model, optimizer, weight(16, 3, 32, 32), make_labels(16))


def make_convolutional_step() -> Run:
    from tinygrad import nn

    model = ConvolutionalNet()
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.001)
    return make_training(model, optimizer, weight(32, 1, 28, 28), make_labels(32))


def make_sample_gradients() -> Run:
    """The gradient of each sample's loss, of a perceptron with one hidden layer."""
    from tinygrad.func import grad, vmap

    first, second = weight(64, 128), weight(128, 10)

    def find_loss(given: Any, x: Any) -> Any:
        return ((x @ given[0]).tanh() @ given[1]).square().mean()

    per_sample = vmap(grad(find_loss), in_axes=(None, 0))

    def find_gradients(x: Any) -> Any:
        return per_sample([first, second], x)

    return compile_calls(find_gradients, weight(64, 64))


# *** optimal control: the Jacobian of the steps of a bicycle's drive, as in samples/bicycle_ocp.py

STEPS, WHEELBASE = 200, 2.5


def move(state: Any, controls: Any) -> Any:
    from tinygrad import Tensor

    _, _, heading, speed, steering = state
    acceleration, steering_rate = controls
    turn = speed * steering.tan() / WHEELBASE
    return Tensor.stack(speed * heading.cos(), speed * heading.sin(), turn, acceleration, steering_rate)


def find_gap(stage: Any, next_state: Any, dt: Any) -> Any:
    state, controls = stage[:5], stage[5:]
    middle = state + dt / 2 * move(state, controls)
    return next_state - (state + dt * move(middle, controls))


def find_gaps(z: Any) -> Any:
    from tinygrad.func import vmap

    stages = z[:-1].pad((0, 2)).reshape(STEPS + 1, 7)
    return vmap(find_gap, in_axes=(0, 0, None))(stages[:-1], stages[1:, :5], z[-1] / STEPS).flatten()


def make_bicycle() -> Run:
    from tinygrad.func import color, jacobian_sparsity, sparse_jacobian

    z = weight(7 * (STEPS + 1) - 2 + 1)
    pattern = jacobian_sparsity(find_gaps, z)
    coloring = color(pattern)

    def find_values(given: Any) -> Any:
        found: Any = sparse_jacobian(find_gaps, given, pattern, coloring)
        return found.values

    return compile_calls(find_values, z)


# *** matmuls of small numbers


def make_int8_matmul() -> Run:
    """Weights of int8 with a scale for each column, made floats where they are used."""
    from tinygrad import Tensor

    packed = Tensor.randint(512, 512, low=-127, high=127).cast("int8").realize()
    scale = weight(512)
    return compile_calls(lambda x: x @ (packed.float() * scale), weight(128, 512))


def make_half_matmul() -> Run:
    a, b = weight(256, 512, dtype="half"), weight(512, 512, dtype="half")
    return compile_calls(lambda x: (x @ b).relu(), a)


OWN: dict[str, Callable[[], Run]] = {
    "rotary attention": make_rotary_attention,
    "llm, prefill": make_llm_prefill,
    "llm, token": make_llm_token,
    "GPT block, training": make_gpt_block,
    "ResNet, training": make_resnet_step,
    "ConvNet, Adam": make_convolutional_step,
    "bicycle OCP": make_bicycle,
    "per-sample gradients": make_sample_gradients,
    "int8 matmul": make_int8_matmul,
    "half matmul": make_half_matmul,
}


def make(maker: Callable[[], Run]) -> Run:
    """Returns what runs one call until all its kernels have ended, with the same random numbers each time."""
    from tinygrad import Device, Tensor

    Tensor.manual_seed(0)
    call = maker()

    def run() -> None:
        call()
        Device[Device.DEFAULT].synchronize()

    return run
