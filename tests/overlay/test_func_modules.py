"""`functional_call` and `stack_module_state`: a module as a function of its state, each against a loop over modules."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from refusals import Refusals, check_refusal, each_refusal
from scopes import numbers, same
from tinygrad import Tensor, TinyJit, nn
from tinygrad.func import functional_call, grad, jacrev, jvp, stack_module_state, value_and_grad, vmap
from tinygrad.nn.state import get_state_dict
from tinygrad_overlay._func.state import find_slots

X = numbers(6, 4, dtype=np.float64)
Pair = namedtuple("Pair", ["left", "right"])


def made(*shape: int, seed: int) -> Tensor:
    return Tensor(numbers(*shape, dtype=np.float64, seed=seed) / 4).realize()


class Layers:
    """A net of two layers."""

    def __init__(self, seed: int = 0) -> None:
        self.first = nn.Linear(4, 5)
        self.rest = [Tensor.tanh, nn.Linear(5, 3)]
        self.first.weight, self.first.bias = made(5, 4, seed=seed), made(5, seed=seed)
        self.rest[1].weight, self.rest[1].bias = made(3, 5, seed=seed), made(3, seed=seed)

    def __call__(self, x: Tensor) -> Tensor:
        return self.first(x).sequential(self.rest)


class Tied:
    """One Tensor under two names."""

    def __init__(self, seed: int = 0) -> None:
        self.up = self.down = made(4, 4, seed=seed)

    def __call__(self, x: Tensor) -> Tensor:
        return (x @ self.up).tanh() @ self.down.T


class Counter:
    """State that is written in each way there is."""

    def __init__(self) -> None:
        self.assigned, self.added = made(4, seed=1), made(4, seed=2)
        self.set, self.rebound, self.viewed = made(4, seed=3), made(4, seed=4), made(2, 4, seed=5)
        self.kept = made(4, seed=6)

    def __call__(self, x: Tensor) -> Tensor:
        self.assigned.assign(self.assigned * 2 + x)
        self.added += x
        self.set[1:3] = x[1:3]
        self.rebound = self.rebound + x
        self.viewed[1].assign(x)
        return self.assigned + self.added + self.set + self.rebound + self.viewed.sum(0) + self.kept


def counted(state: dict[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What Counter does, in numpy: its result and what it wrote."""
    new = {
        "assigned": state["assigned"] * 2 + x,
        "added": state["added"] + x,
        "set": np.where([0, 1, 1, 0], x, state["set"]),
        "rebound": state["rebound"] + x,
        "viewed": np.stack([state["viewed"][0], x]),
    }
    total = sum(v.sum(0) if name == "viewed" else v for name, v in new.items()) + state["kept"]
    return total, new


def arrays(module: Any) -> dict[str, np.ndarray]:
    return {name: x.numpy() for name, x in get_state_dict(module).items()}


def same_state(got: dict[str, Tensor], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, x in got.items():
        same(x, want[name])


class Nothing:
    """Attributes of every kind."""

    def __init__(self) -> None:
        self.dict = {"a": Tensor([1.0]), "b": {"c": Tensor([2.0])}, 3: Tensor([3.0])}
        self.ordered = OrderedDict(z=Tensor([4.0]), a=Tensor([5.0]))
        self.list = [Tensor([6.0]), (Tensor([7.0]), 8, "text", None)]
        self.pair = Pair(Tensor([9.0]), nn.Linear(1, 1))
        self.function, self.method, self.type = np.sin, Tensor.relu, nn.Linear


def test_names_equal_get_state_dict() -> None:
    for module in (Nothing(), Layers(), Tied(), nn.BatchNorm(3), [nn.Linear(2, 2), nn.LayerNorm(3)]):
        want = get_state_dict(module)
        assert [(name, id(x)) for name, x, _ in find_slots(module)] == [(name, id(x)) for name, x in want.items()]


# *** values


def test_a_part_of_the_state_takes_the_place_of_the_modules() -> None:
    a, b = Layers(1), Layers(2)
    x = Tensor(X)
    want = b(x).numpy()
    before = arrays(a)
    same(functional_call(a, get_state_dict(b), (x,)), want)
    same(functional_call(a, get_state_dict(b), x), want)
    same(functional_call(a, get_state_dict(b), kwargs={"x": x}), want)
    same(functional_call(a, {}, x), a(x).numpy())
    first = {name: v for name, v in get_state_dict(b).items() if name.startswith("first")}
    rest = {name: v for name, v in get_state_dict(b).items() if name.startswith("rest")}
    same(functional_call(a, (first, rest), x), want)
    a.first = b.first
    same(functional_call(Layers(1), first, x), a(x).numpy())
    assert before.keys() == arrays(a).keys()


def test_an_ensemble_is_the_loop_over_its_modules() -> None:
    modules = [Layers(seed) for seed in range(3)]
    state = stack_module_state(modules)
    x = Tensor(X)
    each = vmap(lambda s, v: functional_call(modules[0], s, v), in_axes=(0, None))(state, x)
    same(each, [module(x).numpy() for module in modules])
    pairs = vmap(lambda s, v: functional_call(modules[0], s, v))(state, x[:3])
    same(pairs, [module(x[i]).numpy() for i, module in enumerate(modules)])


def loss(module: Any, state: Any, x: Tensor) -> Tensor:
    return functional_call(module, state, x).square().sum()


@pytest.mark.parametrize("make", [Layers, Tied])
def test_gradients_of_each_sample(make: Callable[[], Any]) -> None:
    module = make()
    weights = {name: x for name, x in get_state_dict(module).items() if name != "down"}
    x = Tensor(X)
    got = arrays(vmap(grad(lambda w, v: loss(module, w, v)), in_axes=(None, 0))(weights, x))
    for i in (0, 3):
        want = module(x[i]).square().sum().gradient(*weights.values())
        for name, w in zip(weights, want, strict=True):
            np.testing.assert_allclose(got[name][i], w.numpy(), rtol=1e-9, atol=1e-12)


def test_a_step_of_training_of_an_ensemble() -> None:
    modules = [Tied(seed) for seed in range(3)]
    x = Tensor(X)
    of_one = value_and_grad(lambda s: loss(modules[0], s, x))
    state = stack_module_state(modules)
    assert list(state) == ["up"]
    values, slopes = vmap(of_one)(state)
    for i, module in enumerate(modules):
        want = module(x).square().sum()
        same(values[i], want.item())
        same(slopes["up"][i], want.gradient(module.up)[0].numpy())


def test_forward_derivatives_and_jacobians_by_the_state() -> None:
    module, x = Layers(), Tensor(X[0])
    state = get_state_dict(module)
    direction = {name: v * 0.5 for name, v in state.items()}
    _, slope = jvp(lambda s: functional_call(module, s, x), (state,), (direction,))
    rows = jacrev(lambda s: functional_call(module, s, x))(state)
    want = sum((rows[name] * direction[name]).reshape(3, -1).sum(1) for name in state)
    same(slope, want.numpy())


# *** state that a call writes


def test_each_way_to_write_gives_the_new_value_and_leaves_the_old() -> None:
    module, x = Counter(), Tensor(X[0])
    before, tensors = arrays(module), get_state_dict(module)
    given = {name: (v + 1).realize() for name, v in tensors.items()}
    for state in ({}, given):
        was = {**before, **{name: v.numpy() for name, v in state.items()}}
        out, new = functional_call(module, state, x, mutable=True)
        want, written = counted(was, X[0])
        same(out, want)
        same_state(new, written)
    assert {name: id(v) for name, v in get_state_dict(module).items()} == {name: id(v) for name, v in tensors.items()}
    same_state(get_state_dict(module), before)
    same_state(given, {name: v + 1 for name, v in before.items()})


def test_each_element_of_a_batch_writes_its_state() -> None:
    """The states of several modules, and one state that is not mapped."""
    modules, rows = [Counter() for _ in range(3)], Tensor(X[:3])
    same_for_all = vmap(lambda v: functional_call(modules[0], {}, v, mutable=True))(rows)
    for i, module in enumerate(modules):
        for v in get_state_dict(module).values():
            v.assign(v + i).realize()
    own = vmap(lambda s, v: functional_call(modules[0], s, v, mutable=True))(stack_module_state(modules), rows)
    for i, module in enumerate(modules):
        for (out, new), state in ((same_for_all, Counter()), (own, module)):
            want, written = counted(arrays(state), X[i])
            same(out[i], want)
            same_state({name: v[i] for name, v in new.items()}, written)


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


BATCHES = numbers(2, 5, 4, 2)


def test_a_view_of_the_state_is_written_under_grad() -> None:
    module = Counter()
    slopes = grad(lambda s: functional_call(module, s, Tensor(X[0]), mutable=True)[0].sum())(get_state_dict(module))
    same(slopes["viewed"], [[1.0] * 4, [0.0] * 4])
    same(slopes["assigned"], [2.0] * 4)
    same(slopes["set"], [1.0, 0.0, 0.0, 1.0])


def test_a_write_to_what_only_looks_like_the_state() -> None:
    """tinygrad has one UOp for two Tensors that are made in the same way, as long as they have no memory."""
    row = Tensor(X[0]).realize()

    class Scratch:
        def __init__(self) -> None:
            self.state = row * 2

        def __call__(self, x: Tensor) -> Tensor:
            scratch = row * 2
            scratch.assign(x)
            return scratch + self.state

    with pytest.raises(NotImplementedError, match="which has no memory yet: realize the state before the call"):
        functional_call(Scratch(), {}, row)
    module = Scratch()
    module.state.realize()
    same(functional_call(module, {}, row), X[0] * 3)


def test_batch_norm_in_training_under_vmap() -> None:
    modules, x = [nn.BatchNorm(4) for _ in BATCHES], Tensor(BATCHES).realize()
    state = stack_module_state(modules)
    call = vmap(lambda s, v: functional_call(modules[0], s, v, mutable=True))
    with Tensor.train():
        out, new = call(state, x)
        assert sorted(new) == ["num_batches_tracked", "running_mean", "running_var"]
        # a second batch takes the state of the first
        again = arrays(call({**state, **new}, x * 2)[1])
        got = out.numpy()
        for i, module in enumerate(modules):
            close(module(x[i]).numpy(), got[i])
            module(x[i] * 2)
            for name, value in again.items():
                close(get_state_dict(module)[name].numpy(), value[i])


def test_batch_norm_in_training_under_grad() -> None:
    module, x = nn.BatchNorm(4), Tensor(BATCHES).realize()
    weights = {name: x for name, x in get_state_dict(module).items() if name in {"weight", "bias"}}

    def of_weights(w: dict[str, Tensor], v: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y, state = functional_call(module, w, v, mutable=True)
        return (y * v).sum(), state

    with Tensor.train():
        slopes, stats = vmap(grad(of_weights, has_aux=True), in_axes=(None, 0))(weights, x)
        want = (module(x[1]) * x[1]).sum().gradient(*weights.values())
    for name, slope in zip(weights, want, strict=True):
        close(slopes[name][1].numpy(), slope.numpy())
    close(stats["running_mean"][1].numpy(), module.running_mean.numpy())


def test_under_tinyjit_the_state_goes_in_and_out() -> None:
    module = nn.BatchNorm(4)
    want = nn.BatchNorm(4)

    @TinyJit
    def step(mean: Tensor, var: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        state = {"running_mean": mean, "running_var": var}
        out, new = functional_call(module, state, x, mutable=True)
        return out.realize(), new["running_mean"].contiguous().realize(), new["running_var"].contiguous().realize()

    mean, var = Tensor.zeros(4).contiguous().realize(), Tensor.ones(4).contiguous().realize()
    with Tensor.train():
        for i in range(4):
            x = Tensor(numbers(5, 4, 2, seed=i)).realize()
            out, mean, var = (v.clone().realize() for v in step(mean, var, x))
            np.testing.assert_allclose(out.numpy(), want(x).numpy(), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(mean.numpy(), want.running_mean.numpy(), rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(var.numpy(), want.running_var.numpy(), rtol=1e-4, atol=1e-6)
    same(module.running_mean, np.zeros(4))


# *** the module has its own again


class Raises(Counter):
    def __call__(self, x: Tensor) -> Tensor:
        super().__call__(x)
        raise KeyError("of the user's")


def test_a_call_that_raises_leaves_the_module_as_it_was() -> None:
    module = Raises()
    before, tensors = arrays(module), get_state_dict(module)
    with pytest.raises(KeyError, match="of the user's"):
        functional_call(module, {"kept": Tensor.zeros(4, dtype="double")}, Tensor(X[0]), mutable=True)
    assert all(get_state_dict(module)[name] is x for name, x in tensors.items())
    same_state(get_state_dict(module), before)
    # a write after it is one as always
    module.kept.assign(module.kept + 1)
    same(module.kept, before["kept"] + 1)


def test_a_call_that_realizes_and_weights_that_are_lazy() -> None:
    class Lazy:
        def __init__(self) -> None:
            self.weight = Tensor.rand(4, dtype="double")

        def __call__(self, x: Tensor) -> Tensor:
            return (self.weight * x).realize()

    module = Lazy()
    mine = module.weight * 1
    same(functional_call(module, {"weight": Tensor(X[1]) * 2}, Tensor(X[0])), X[1] * 2 * X[0])
    same(module.weight, mine.numpy())
    out, new = functional_call(module, {}, Tensor(X[0]), mutable=True)
    same(out, mine.numpy() * X[0])
    assert new == {}


def test_grad_and_requires_grad_of_the_module_are_restored() -> None:
    module = Layers()
    module.first.weight.requires_grad = True
    module(Tensor(X)).sum().backward()
    kept = module.first.weight.grad
    assert kept is not None
    functional_call(module, {"first.weight": Tensor.ones(5, 4, dtype="double")}, Tensor(X)).sum().backward()
    assert module.first.weight.grad is kept
    assert module.first.weight.requires_grad


def test_a_module_that_calls_another_functionally() -> None:
    inner, outer = Layers(1), Layers(2)
    x = Tensor(X)

    class Both:
        def __init__(self) -> None:
            self.net = inner

        def __call__(self, v: Tensor) -> Tensor:
            return self.net(v) + functional_call(self.net, get_state_dict(outer), v)

    state = {f"net.{name}": v for name, v in get_state_dict(Layers(3)).items()}
    same(functional_call(Both(), state, x), (Layers(3)(x) + outer(x)).numpy())


# *** what it cannot take

REFUSALS: Refusals = {
    TypeError: {
        "the module is 3 of type int, which cannot be called": lambda: functional_call(3, {}),
        "a dict of names and Tensors, or a tuple of": lambda: functional_call(Tied(), 3),
        "state['up'] is 'text' of type str, not a Tensor": lambda: functional_call(Tied(), {"up": "text"}, Tensor(X)),
    },
    ValueError: {
        "Tied has no Tensor 'left', it has 'up', 'down'": lambda: functional_call(
            Tied(), {"left": Tensor(X)}, Tensor(X)
        ),
        "state['up'] has shape (6, 4), and in Tied it has (4, 4)": lambda: functional_call(
            Tied(), {"up": Tensor(X)}, Tensor(X)
        ),
        "'up' is in two of the dicts": lambda: functional_call(
            Tied(), ({"up": made(4, 4, seed=1)}, {"up": made(4, 4, seed=1)}), Tensor(X)
        ),
        "'up' and 'down' are one Tensor of Tied, and the state has two values for it; leave one of them out": lambda: (
            functional_call(Tied(), {"up": made(4, 4, seed=1), "down": made(4, 4, seed=2)}, Tensor(X))
        ),
        "there is no module to stack": lambda: stack_module_state([]),
        "modules[0] has 'up', and modules[1] has not": lambda: stack_module_state([Tied(), Layers()]),
        "'weight' is of shape (3, 2) and float in modules[0] and of shape (2, 3) and float in modules[1]": lambda: (
            stack_module_state([nn.Linear(2, 3), nn.Linear(3, 2)])
        ),
    },
    RuntimeError: {
        "'assigned', 'added', 'set', 'rebound', 'viewed', and its state stays as it is; mutable=True": lambda: (
            functional_call(Counter(), {}, Tensor(X[0]))
        )
    },
}


@each_refusal(REFUSALS)
def test_what_it_cannot_take(error: type[Exception], sentence: str, call: Any) -> None:
    check_refusal(error, sentence, call)


def test_a_write_that_does_not_fit_is_one_sentence() -> None:
    class Wrong(Tied):
        def __call__(self, x: Tensor) -> Tensor:
            return self.up.assign(x)

    module = Wrong()
    before = arrays(module)
    with pytest.raises(ValueError, match=r"cannot broadcast \(6, 4\) to new_shape=\(4, 4\)"):
        functional_call(module, {}, Tensor(X), mutable=True)
    state = {"up": Tensor.ones(4, 4, dtype="float")}
    with pytest.raises(
        ValueError, match=r"a Tensor of shape \(4, 4\) and double .* the state of shape \(4, 4\) and float"
    ):
        functional_call(module, state, Tensor(X[:4]), mutable=True)
    same_state(get_state_dict(module), before)
