"""A transformer block, forward and backward."""

from tinygrad import Tensor

Tensor.manual_seed(1)
BATCH, STEPS, WIDTH, HEADS = 2, 64, 128, 4


def weight(*shape):
    return (Tensor.rand(*shape) * 0.2 - 0.1).realize()


def norm(values, scale):
    return values * (values.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * scale


x, scale_in, scale_out = weight(BATCH, STEPS, WIDTH), weight(WIDTH), weight(WIDTH)
mixing = [weight(WIDTH, WIDTH) for _ in range(4)]
gate, up, down = weight(WIDTH, 4 * WIDTH), weight(WIDTH, 4 * WIDTH), weight(4 * WIDTH, WIDTH)

inside = norm(x, scale_in)
heads = [(inside @ w).reshape(BATCH, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2) for w in mixing[:3]]
attended = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True)
middle = x + attended.transpose(1, 2).reshape(BATCH, STEPS, WIDTH) @ mixing[3]
inside = norm(middle, scale_out)
out = middle + ((inside @ gate).silu() * (inside @ up)) @ down
loss = out.square().mean()
gradients = loss.gradient(x, *mixing, gate, up, down)
Tensor.realize(loss, *gradients)
