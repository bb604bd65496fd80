"""A pytest plugin that realizes each draw of random numbers at once.

A draw that waits gets the numbers of the counter that it finds when it runs. A finding that is gone with this plugin is
about such a draw."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad import Tensor

# methods of Tensor that draw random numbers, by themselves or through another one of these
DRAWS = ("rand", "randn", "randint", "uniform", "normal", "scaled_uniform", "glorot_uniform", "kaiming_uniform")


def realizing(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def draw_now(*args: object, **options: object) -> Tensor:
        return draw(*args, **options).realize()

    return draw_now


for name in DRAWS:
    setattr(Tensor, name, staticmethod(realizing(getattr(Tensor, name))))
