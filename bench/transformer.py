"""A 24-layer transformer's forward pass, left lazy: 4,500 nodes, 288 kernels. Measured by `bench.overhead`."""

from tinygrad import Tensor

LAYERS, BATCH, TOKENS, WIDTH, HEADS = 24, 1, 32, 64, 4


def make_layer():
    return {
        "qkv": Tensor.empty(WIDTH, 3 * WIDTH),
        "out": Tensor.empty(WIDTH, WIDTH),
        "up": Tensor.empty(WIDTH, 4 * WIDTH),
        "down": Tensor.empty(4 * WIDTH, WIDTH),
    }


def attend(x, layer):
    heads = (x @ layer["qkv"]).reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    mixed = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True)
    return mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH) @ layer["out"]


def forward(x, layers):
    for layer in layers:
        x = x + attend(x.layernorm(), layer)
        x = x + (x.layernorm() @ layer["up"]).gelu() @ layer["down"]
    return x


out = forward(Tensor.empty(BATCH, TOKENS, WIDTH), [make_layer() for _ in range(LAYERS)])
