"""Thirty training steps of a GPT under TinyJit, on two sentences that take turns."""

from tinygrad import Tensor, TinyJit

Tensor.manual_seed(1)
LAYERS, BATCH, STEPS, WIDTH, HEADS, WORDS, CALLS = 2, 2, 64, 128, 4, 512, 30


def weight(*shape):
    return (Tensor.rand(*shape) * 0.2 - 0.1).realize()


def attend(values, layer):
    split = (values @ layer["mix"]).reshape(BATCH, STEPS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    found = split[0].scaled_dot_product_attention(split[1], split[2], is_causal=True)
    return found.transpose(1, 2).reshape(BATCH, STEPS, WIDTH) @ layer["out"]


def make_layer():
    sizes = {"mix": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    return {name: weight(*shape) for name, shape in sizes.items()}


layers, words = [make_layer() for _ in range(LAYERS)], weight(WORDS, WIDTH)
weights = [w for layer in layers for w in layer.values()]
texts = [Tensor([k * i % WORDS for i in range(BATCH * STEPS)]).reshape(BATCH, STEPS).realize() for k in (37, 41)]


@TinyJit
def train(text):
    x = words[text]
    for layer in layers:
        x = x + attend(x.layernorm(), layer)
        x = x + (x.layernorm() @ layer["up"]).gelu() @ layer["down"]
    scores = (x.layernorm() @ words.T).reshape(-1, WORDS)
    loss = scores.sparse_categorical_crossentropy(((text + 1) % WORDS).reshape(-1))
    steps = [w.assign(w - 0.01 * g) for w, g in zip(weights, loss.gradient(*weights), strict=True)]
    return loss.realize(*steps)


losses = [train(texts[call % 2]).item() for call in range(CALLS)]
