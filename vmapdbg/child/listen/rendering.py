"""Renders kernels for any target, without its device or its compiler, on any release. A renderer's constructor opens
the target's compiler, which needs its libraries. So the modules with compilers are replaced while it runs; all else
(tensor cores, rules for the architecture) stays as in the release."""

import contextlib
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from vmapdbg.install.targets import TARGETS, Target

UOp = Any

_CLANG = ("ClangJITRenderer", "ClangRenderer")  # the CPU's renderers over the releases: their source is target c's


class RendererMissing(Exception):
    """This tinygrad has no renderer for a target, or the renderer needs its device."""


@dataclass(frozen=True)
class CompiledKernel:
    """A rendered kernel: `outs` and `ins` are the slots of the buffers it writes and reads, `uops` its linear program.
    Sizes that depend on a variable are UOps; `local_size` is None on targets without groups."""

    name: str
    source: str
    global_size: tuple[Any, ...]
    local_size: tuple[Any, ...] | None
    outs: tuple[int, ...]
    ins: tuple[int, ...]
    uops: tuple[UOp, ...]


def compile_kernel(ast: UOp, target: str) -> CompiledKernel:
    """Renders the AST of a compute kernel for a target. Raises what tinygrad raises, and RendererMissing."""
    from tinygrad.helpers import Context

    program: Any = compiled_for_cpu().get(ast.key) if target == "c" else None
    if program is None:
        # BEAM times kernels on the device; without the device there is nothing to time
        with Context(BEAM=0):
            program = _find_lower()(ast, make_renderer(target))
    if hasattr(program, "function_name"):
        info, source, uops = program, program.src, program.uops or ()  # a ProgramSpec: until May 2026
    else:
        parts = {part.op.name: part for part in program.src}
        info, source, uops = program.arg, parts["SOURCE"].arg, parts["LINEAR"].src
    sizes = tuple(info.global_size), info.local_size
    return CompiledKernel(info.function_name, source, *sizes, tuple(info.outs), tuple(info.ins), tuple(uops))


def lower_again(ast: UOp, device: str) -> None:
    """Lowers the AST of a kernel for its device, also if it is known. Raises what tinygrad raises."""
    import tinygrad.codegen as codegen
    from tinygrad.device import Device
    from tinygrad.helpers import Context

    known: dict[Any, Any] = getattr(codegen, "to_program_cache", {})
    before = dict(known)
    known.clear()
    try:
        with Context(BEAM=0):
            _find_lower()(ast, Device[device].renderer)
    finally:
        known.update(before)


def name_opt(opt: Any) -> str:
    """Returns `UPCAST 0 4`: the optimization, its axis and its argument."""
    return " ".join(str(part) for part in (opt.op.name, opt.axis, opt.arg) if part is not None)


def _find_lower() -> Any:
    """Returns the function that lowers an AST for a renderer: its name until May 2026; before 0.12 realize had it."""
    from tinygrad import codegen
    from tinygrad.engine import realize

    places: tuple[Any, ...] = (codegen, realize)
    return next((m.get_program for m in places if hasattr(m, "get_program")), None) or places[0].to_program


@functools.cache
def compiled_for_cpu() -> dict[bytes, Any]:
    """Maps the key of an AST to its program, for what the snippet compiled while it ran: it is not rendered again."""
    import tinygrad.codegen as codegen
    import tinygrad.engine.realize as realize

    runners: dict[Any, Any] = getattr(realize, "method_cache", {})
    programs: dict[Any, Any] = getattr(codegen, "to_program_cache", {})
    found: dict[bytes, Any] = {}
    for key, runner in runners.items():
        is_cpu = runner.p.device.split(":")[0] == "CPU" and runner.p.uops is not None
        if is_cpu and type(runner.dev.renderer).__name__ in _CLANG:
            found[key[2]] = runner.p
    for (ast_key, renderer, target, *_), program in programs.items():
        is_cpu = getattr(target, "device", "") == "CPU" and renderer.__name__ in _CLANG
        # a PROGRAM of April 2026 says nothing of itself: its runner does
        if is_cpu and program.arg is not None:
            found[ast_key] = program
    if not found:
        # up to 0.13 the names of kernels are numbered; kernels of another device must not use up numbers
        getattr(importlib.import_module("tinygrad.codegen.opt.postrange").Scheduler, "kernel_cnt", {}).clear()
    return found


@functools.cache
def make_renderer(target: str) -> Any:
    """Returns the renderer of a target of `TARGETS`, without its device or compiler. Raises RendererMissing."""
    place = TARGETS[target]
    try:
        module = importlib.import_module(f"tinygrad.renderer.{place.module}")
    except ImportError as error:
        raise RendererMissing(str(error)) from error
    kind = next((getattr(module, name) for name in place.renderers if hasattr(module, name)), None)
    if kind is None:
        raise RendererMissing(f"tinygrad.renderer.{place.module} has no {' or '.join(place.renderers)}")
    # tinygrad caches compiled programs by the renderer's class, so this renderer needs a class that nothing else uses
    subclass = type(kind.__name__, (kind,), {"__module__": kind.__module__})
    try:
        with _without_compilers():
            return subclass(*_list_arguments(kind, place))
    except Exception as error:
        raise RendererMissing(f"{kind.__name__}: {type(error).__name__}: {error}") from error


def _list_arguments(kind: type, place: Target) -> list[Any]:
    """Returns what the constructor asks for: a Target, an architecture, or nothing."""
    asked = list(inspect.signature(kind).parameters)
    if asked[:1] == ["target"]:
        helpers: Any = importlib.import_module("tinygrad.helpers")
        name = place.renderers[-1].removesuffix("Renderer").upper()
        return [helpers.Target(device=place.device, renderer=name, arch=place.arch)]
    return [place.arch] if asked[:1] == ["arch"] else []


class _NoCompilers(ModuleType):
    """Replaces a module of compilers: each of its names is a compiler that returns the source."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        device: Any = importlib.import_module("tinygrad.device")
        return type("NoCompiler", (device.Compiler,), {"cachekey": None, "__init__": lambda *args, **options: None})


@contextlib.contextmanager
def _without_compilers() -> Iterator[None]:
    support: Any = importlib.import_module("tinygrad.runtime.support")
    found = [m.name for m in pkgutil.iter_modules(support.__path__) if m.name.startswith("compiler_")]
    names = [f"tinygrad.runtime.support.{name}" for name in found] + ["tinygrad.runtime.ops_metal"]
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update({name: _NoCompilers(name) for name in names})
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)
