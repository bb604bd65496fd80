"""What a run of a snippet gives: the values of the tensors that it realizes, so that two runs can be compared."""

import hashlib
import math
import os
import struct
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vmapdbg.child.listen.guard import watching
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.memory import name_dtype, read_buffer
from vmapdbg.install.overlay import tinygrad_finder
from vmapdbg.model.capture import Output

SAMPLE = 1024
"""The most elements that are kept of one tensor, evenly spaced."""

_BITS = {"bfloat16": "H", "fp8e4m3": "B", "fp8e5m2": "B"}  # formats of their bits: `struct` lacks these dtypes

_NO_VALUES = ("NULL", "DISK", "TINYFS")  # devices whose memory is no result of a computation


def note_values(tensor_module: ModuleType, recorder: Recorder) -> None:
    """Wraps `Tensor.realize`: each Tensor that a new schedule realized becomes its output. Raises UnknownShape."""

    def noting(realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        before = len(recorder.schedules)
        result = realize(tensor, *others, **options)
        if len(recorder.schedules) > before:
            recorder.schedules[-1].outputs += filter(None, map(read_output, (tensor, *others)))
        return result

    with watching("values of realized tensors") as changes:
        changes.wrap(tensor_module.Tensor, "realize", noting, "self", "lst", "do_update_stats")


SEED = 0


def fix_seeds() -> None:
    """Seeds `random` and numpy at their imports, so that two runs have the same data. The program's own seed stays."""
    finder = tinygrad_finder()
    seeded: dict[str, Callable[[Any], None]] = {
        "random": lambda module: module.seed(SEED),
        "numpy.random.bit_generator": _seed_numpy,
    }
    finder.patches = {**finder.patches, **seeded}
    for name, seed in seeded.items():
        if name in sys.modules:
            seed(sys.modules[name])


def _seed_numpy(module: ModuleType) -> None:
    """Replaces the source of numpy's default seeds, for `RandomState()`, `default_rng()` and `numpy.random`."""
    import random

    module.__dict__["randbits"] = random.Random(SEED).getrandbits


def read_output(tensor: Any) -> Output | None:
    """Returns the values of a realized Tensor, None if it has none to read (sharded tensors, virtual devices)."""
    device = tensor.uop.device
    if not isinstance(device, str) or device.startswith(_NO_VALUES) or not tensor.uop.is_realized:
        return None
    buffer = tensor.uop.base.buffer
    data = read_buffer(buffer)
    name = name_dtype(getattr(buffer.dtype, "base", buffer.dtype))  # 0.14 has no dtype of pointers
    shape = tuple(map(int, tensor.shape))
    return Output(shape, name, hashlib.sha256(data).hexdigest(), sample_values(data, name))


def sample_values(data: bytes, dtype: str) -> tuple[float | str, ...]:
    """Returns at most `SAMPLE` elements of a buffer; none if the dtype has no numbers."""
    from tinygrad.dtype import dtypes

    # not numpy: the interpreter of the user's project may not have it
    form: str | None = getattr(getattr(dtypes, dtype, None), "fmt", None) or _BITS.get(dtype)
    if form is None or not data:
        return ()
    size = struct.calcsize(f"={form}")
    step = math.ceil(len(data) // size / SAMPLE) * size
    picked = [data[start : start + size] for start in range(0, len(data), step)]
    if dtype.startswith("fp8"):
        from vmapdbg.values.numbers import Array, decode

        numbers = map(float, decode(Array(b"".join(picked), dtype, (len(picked),))))
    else:
        if dtype == "bfloat16":
            picked, form = [b"\0\0" + value for value in picked], "f"  # the upper half of a float
        numbers = map(float, struct.unpack(f"<{len(picked)}{form}", b"".join(picked)))
    return tuple(number if math.isfinite(number) else str(number) for number in numbers)


# *** what `bisect` measures


def hold_beam() -> None:
    """Keeps BEAM at 0, whatever environment and `Context` say: searches differ from run to run and are cached."""
    from tinygrad.helpers import BEAM

    # a captured TinyJit reads it from the environment
    os.environ["JITBEAM"] = "0"
    held = property(lambda beam: 0, lambda beam, value: None)
    BEAM.__class__ = type("HeldBeam", (type(BEAM),), {"value": held})
