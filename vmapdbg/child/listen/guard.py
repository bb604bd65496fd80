"""The one guard around our functions that tinygrad calls. If ours fails, tinygrad's function runs as it does
without us, and one line names the part that could not be observed: the program must not fail because it is observed."""

import functools
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vmapdbg.install.overlay import OverlayError, load_patching

_missing: list[str] = []  # the lines of the last recorder


def report_to(missing: list[str]) -> None:
    """Adds the lines about parts that fail to this list from here on."""
    global _missing
    _missing = missing


def leave_out(part: str, error: Exception) -> str:
    """Notes once that a part could not be observed, and returns the line."""
    innermost = list(traceback.walk_tb(error.__traceback__))[-1:]
    place = "".join(f" at {os.path.basename(frame.f_code.co_filename)}:{number}" for frame, number in innermost)
    line = f"{part} could not be observed on this tinygrad: {type(error).__name__}: {str(error)[:200]}{place}"
    if line not in _missing:
        _missing.append(line)
    return line


def guard(part: str, around: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `around`, which gets tinygrad's function and its arguments, so that it never raises an error of ours."""

    def guarded(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        results, errors = list[Any](), list[BaseException]()  # of the last call of tinygrad's function

        def run(*given: Any, **options: Any) -> Any:
            errors.clear()
            try:
                results[:] = [stock(*given, **options)]
            except BaseException as error:
                errors.append(error)
                raise
            return results[0]

        try:
            try:
                return around(run, *args, **kwargs)
            except Exception as error:
                if any(error is one for one in errors) or isinstance(error, OverlayError):
                    raise
                leave_out(part, error)
            if errors:
                raise errors[0]
            if not results:
                return stock(*args, **kwargs)
            return results[0]
        finally:
            errors.clear()  # else the frames would keep the program's tensors

    return guarded


@contextmanager
def leaving_out(part: str) -> Iterator[None]:
    """Leaves out a part if its block fails, or the function that it decorates, which then returns None."""
    try:
        yield
    except OverlayError:
        raise
    except Exception as error:
        leave_out(part, error)


@contextmanager
def setting(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives an attribute another value for the time of a block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def put_around(owner: Any, name: str, around: Callable[..., Any], part: str = "") -> None:
    """Replaces a function or method by `around`, which gets it and its arguments. Raises UnknownShape without one."""
    load_patching().check(name in vars(owner), owner, name, "a function", "nothing")
    stock = vars(owner)[name]
    guarded = guard(part or name, around)

    @functools.wraps(stock)
    def watched(*args: Any, **kwargs: Any) -> Any:
        return guarded(stock, *args, **kwargs)

    setattr(owner, name, watched)


def put_after(owner: Any, name: str, report: Callable[..., object], part: str = "") -> None:
    """Calls `report` after each call of a function or method, with its result and its arguments."""

    def around(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = stock(*args, **kwargs)
        report(result, *args)
        return result

    put_around(owner, name, around, part)


def watching(part: str) -> Any:
    """Returns the `Changes` of an observer: what it wraps is guarded."""
    changes = load_patching().Changes(part)
    wrap = changes.wrap

    def wrap_guarded(owner: Any, name: str, around: Callable[..., Any], *parameters: str) -> None:
        wrap(owner, name, guard(part, around), *parameters)

    changes.wrap = wrap_guarded
    return changes


class Watched:
    """A PatternMatcher or program of tinygrad. To rewrite or run, `around` gets the stock function and arguments."""

    def __init__(self, stock: Any, around: Callable[..., Any], part: str):
        self._stock, self._around = stock, guard(part, around)

    def rewrite(self, *arguments: Any, **options: Any) -> Any:
        return self._around(self._stock.rewrite, *arguments, **options)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._around(self._stock, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)
