# The sparse Jacobian of an optimal control problem: drive a bicycle from a start to a goal in the shortest time.
#
# Direct multiple shooting: the unknowns z are the states and inputs of all steps and the time T of the whole drive. The equality
# constraints say that each step ends where the next one starts. They are one function of one step, vmapped over the steps.
#
# What to see: a step depends on its own stage, on the next state and on T, so the Jacobian is a band and one full column.
# No two columns of one colour meet in a row, so 8 colours are 8 JVPs, all of them in one vmap around the vmap over the steps:
# E_8_22_5 computes 8 x 110 numbers, and the next kernel only puts them in place. jacrev, further down, executes more
# than a hundred times the work for the same numbers. Finding patterns needs numpy: pip install 'vmapdbg[sparse]'.
#
#   vmapdbg show samples/bicycle_ocp.py --only kernels
#   vmapdbg show samples/bicycle_ocp.py --only vmap,kernels --schedule 3
#
# expect: prints "110 x 146, 590 nonzeros (3.67%)"
# expect: prints "8 JVPs instead of 146"
# expect: prints "as finite differences: True"
# expect: prints "as jacrev: True"
# expect: kernel E_8_22_5 has "data0_880"
from tinygrad import Tensor, dtypes
from tinygrad.func import color, jacobian_sparsity, jacrev, sparse_jacobian, vmap

N = 20  # steps
WHEELBASE = 2.5  # m
START = Tensor([0.0, 0.0, 0.0, 2.0, 0.0], dtype=dtypes.float64)
GOAL = Tensor([30.0, 10.0, 0.5, 2.0, 0.0], dtype=dtypes.float64)


def move(state: Tensor, controls: Tensor) -> Tensor:
    """The derivative in time of x, y (m), heading (rad), speed (m/s) and steering angle (rad)."""
    _, _, heading, speed, steering = state
    acceleration, steering_rate = controls
    turn = speed * steering.tan() / WHEELBASE
    return Tensor.stack(speed * heading.cos(), speed * heading.sin(), turn, acceleration, steering_rate)


def find_gap(stage: Tensor, next_state: Tensor, dt: Tensor) -> Tensor:
    """From where one step ends (explicit midpoint) to where the next starts: (7,), (5,), () -> (5,)."""
    state, controls = stage[:5], stage[5:]
    middle = state + dt / 2 * move(state, controls)
    return next_state - (state + dt * move(middle, controls))


def constraints(z: Tensor) -> Tensor:
    """(146,) -> (110,): zero where z is a drive from START to GOAL."""
    stages = z[:-1].pad((0, 2)).reshape(N + 1, 7)  # the last state has no controls
    states, dt = stages[:, :5], z[-1] / N
    gaps = vmap(find_gap, in_axes=(0, 0, None))(stages[:-1], states[1:], dt)
    return Tensor.cat(states[0] - START, gaps.flatten(), states[-1] - GOAL)


def guess_drive() -> Tensor:
    """Straight from START to GOAL, with controls that are not zero, in 12 seconds."""
    part = Tensor.arange(N + 1, dtype=dtypes.float64).unsqueeze(1) / N
    controls = Tensor.stack((7 * part).sin(), 0.2 * (5 * part).cos(), dim=2).squeeze(1)
    stages = (START + part * (GOAL - START)).cat(controls, dim=1).flatten()[:-2]
    return stages.cat(Tensor([12.0], dtype=dtypes.float64)).realize()


z = guess_drive()
pattern = jacobian_sparsity(constraints, z)
coloring = color(pattern)
print(pattern)
print(f"{coloring.count} JVPs instead of {z.numel()}")

jacobian = sparse_jacobian(constraints, z, pattern, coloring, format="dense").realize()

step = 1e-6
nudges = Tensor.eye(z.numel(), dtype=dtypes.float64) * step
differences = vmap(lambda nudge: (constraints(z + nudge) - constraints(z - nudge)) / (2 * step), out_axes=1)(nudges)
print("as finite differences:", ((jacobian - differences).abs().max() < 1e-8).item())
print("as jacrev:", ((jacobian - jacrev(constraints)(z)).abs().max() < 1e-12).item())
