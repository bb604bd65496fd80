"""Makes a renderer of any release without its device or its compiler.

A renderer's constructor opens the compiler of the target, which needs the target's libraries. So the modules that have
the compilers are stood in for while the constructor runs: everything else it does (tensor cores, rules that depend on
the architecture) stays as the release has it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from vmapdbg.install.targets import TARGETS, Target


class RendererMissing(Exception):
    """This tinygrad has no renderer for a target, or it cannot be made without its device."""


@functools.cache
def make_renderer(target: str) -> Any:
    """Returns the renderer of a target of `TARGETS`. Raises RendererMissing."""
    place = TARGETS[target]
    try:
        module = importlib.import_module(f"tinygrad.renderer.{place.module}")
    except ImportError as error:
        raise RendererMissing(str(error)) from error
    kind = next((getattr(module, name) for name in place.renderers if hasattr(module, name)), None)
    if kind is None:
        raise RendererMissing(f"tinygrad.renderer.{place.module} has no {' or '.join(place.renderers)}")
    # a class of its own: tinygrad caches compiled programs by the renderer's class, and must not take ours for its own
    own = type(kind.__name__, (kind,), {"__module__": kind.__module__})
    try:
        with _without_compilers():
            return own(*_arguments(kind, place))
    except Exception as error:
        raise RendererMissing(f"{kind.__name__}: {type(error).__name__}: {error}") from error


def _arguments(kind: type, place: Target) -> list[Any]:
    """What the constructor asks for: a Target, an architecture, or nothing."""
    asked = list(inspect.signature(kind).parameters)
    if asked[:1] == ["target"]:
        helpers: Any = importlib.import_module("tinygrad.helpers")
        name = place.renderers[-1].removesuffix("Renderer").upper()
        return [helpers.Target(device=place.device, renderer=name, arch=place.arch)]
    if asked[:1] == ["arch"]:
        return [place.arch]
    return []


class _StandIn(ModuleType):
    """A module of compilers, all of which give back the source."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _no_compiler()


@functools.cache
def _no_compiler() -> type:
    device: Any = importlib.import_module("tinygrad.device")

    class NoCompiler(device.Compiler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()

    return NoCompiler


@contextlib.contextmanager
def _without_compilers() -> Iterator[None]:
    support: Any = importlib.import_module("tinygrad.runtime.support")
    found = [m.name for m in pkgutil.iter_modules(support.__path__) if m.name.startswith("compiler_")]
    names = [f"tinygrad.runtime.support.{name}" for name in found] + ["tinygrad.runtime.ops_metal"]
    before = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = _StandIn(name)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
