from tinygrad import Tensor

BATCH, STEPS, WIDTH, HEADS = 2, 8, 16, 2


def norm(values, scale):
    return values * (values.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * scale


x = Tensor.empty(BATCH, STEPS, WIDTH)
scale_in, scale_out = Tensor.empty(WIDTH), Tensor.empty(WIDTH)
to_query, to_key, to_value, to_out = (Tensor.empty(WIDTH, WIDTH) for _ in range(4))
gate, up = Tensor.empty(WIDTH, 4 * WIDTH), Tensor.empty(WIDTH, 4 * WIDTH)
down = Tensor.empty(4 * WIDTH, WIDTH)

inside = norm(x, scale_in)
query, key, value = (
    (inside @ weight).reshape(BATCH, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2)
    for weight in (to_query, to_key, to_value)
)
attended = query.scaled_dot_product_attention(key, value, is_causal=True)
x1 = x + attended.transpose(1, 2).reshape(BATCH, STEPS, WIDTH) @ to_out
inside2 = norm(x1, scale_out)
out = x1 + ((inside2 @ gate).silu() * (inside2 @ up)) @ down
