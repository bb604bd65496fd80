"""Turns the dataclasses of the JSON documents into plain data, and plain data back into them."""

from __future__ import annotations

import functools
import json
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar

from vmapdbg.model.capture import Capture
from vmapdbg.model.vocabulary import OPEN

# type(), but after `_type_of(x) is list` the items of x are still Any to a type checker, not unknown
_type_of: Callable[[Any], type[Any]] = type


def to_data(value: Any) -> Any:
    """Turns model objects into plain JSON data: dataclasses to dicts in field order, tuples to lists."""
    kind = _type_of(value)
    # most values of a capture have these types, so they are tested first
    if kind is str or kind is int:
        return value
    if kind is tuple:
        return [to_data(item) for item in value]
    if kind is dict:
        return {key: to_data(item) for key, item in value.items()}
    if is_dataclass(kind):
        return {name: to_data(getattr(value, name)) for name in _field_names(kind)}
    return value


def list_fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass. As the `default` of `json.dumps` it writes the same as `to_data`, in half the
    time."""
    return {name: getattr(value, name) for name in _field_names(_type_of(value))}


def dump_document(document: Any) -> str:
    """Returns one JSON document of the contract, newline at the end. The same data gives the same bytes."""
    return json.dumps(to_data(document), indent=1, allow_nan=False) + "\n"


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def from_data(data: Any) -> Capture:
    """Builds a Capture from plain JSON data.

    Raises ValueError with the path of the first field that is missing or has the wrong type. Unknown keys are ignored,
    so that a file of a later minor version still loads.
    """
    return build_data(Capture, data, "capture")


T = TypeVar("T")


def build_data(kind: type[T], data: Any, name: str | None = None) -> T:
    """Builds a value of any dataclass of the contract from plain JSON data, as `from_data` builds a Capture. `name`
    begins the path of a wrong field."""
    try:
        return _builder(kind)(data)
    except _WrongData as wrong:
        raise ValueError(f"{'.'.join([name or kind.__name__, *reversed(wrong.path)])}: {wrong}") from None


class _WrongData(Exception):
    """An error with its path: each level that it passes appends its part, innermost first."""

    def __init__(self, message: str, *path: str):
        super().__init__(message)
        self.path = list(path)


_Build = Callable[[Any], Any]
_PLAIN = (str, int, float, bool)


@functools.cache
def _builder(kind: Any) -> _Build:
    """Returns the function that builds a value of a type. A capture has many values of few types, so it is cached."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _build_dataclass(kind)
    if origin is Annotated:
        # an open list: a newer vmapdbg may have written an unknown value
        return _builder(str) if OPEN in args[1:] else _builder(args[0])
    if origin is Literal:
        return _build_literal(args)
    if origin is tuple:
        return _build_tuple(_builder(args[0]))
    if origin is dict:
        return _build_dict(_builder(args[1]))
    if origin in (typing.Union, types.UnionType):
        return _build_union(args)
    return _build_plain(kind)


def _expected(what: str, data: Any) -> _WrongData:
    return _WrongData(f"expected {what}, not {type(data).__name__}")


def _build_plain(kind: type) -> _Build:
    def build(data: Any) -> Any:
        if type(data) is kind:
            return data
        if kind is float and type(data) is int:
            return float(data)
        raise _expected(kind.__name__, data)

    return build


def _build_literal(accepted: tuple[Any, ...]) -> _Build:
    def build(data: Any) -> Any:
        # in Python True equals 1, and 1.0 does too
        if data in accepted and type(data) in (str, int):
            return data
        raise _WrongData(f"expected {' or '.join(map(repr, accepted))}, not {data!r}")

    return build


def _build_tuple(build_item: _Build) -> _Build:
    def build(data: Any) -> Any:
        if _type_of(data) is not list:
            raise _expected("a list", data)
        return tuple([_name_part(build_item, item, str(number)) for number, item in enumerate(data)])

    return build


def _build_dict(build_item: _Build) -> _Build:
    def build(data: Any) -> Any:
        if _type_of(data) is not dict:
            raise _expected("an object", data)
        return {key: _name_part(build_item, item, key) for key, item in data.items()}

    return build


def _build_union(options: tuple[Any, ...]) -> _Build:
    plain = [o for o in options if o in _PLAIN]
    rest = [o for o in options if o is not types.NoneType and o not in plain]
    build_rest = _builder([*rest, *plain][0])
    optional = types.NoneType in options

    def build(data: Any) -> Any:
        if data is None:
            if optional:
                return None
            raise _WrongData("must not be null")
        return data if type(data) in plain else build_rest(data)

    return build


def _build_dataclass(kind: Any) -> _Build:
    hints = typing.get_type_hints(kind, include_extras=True)
    builders = [(name, _builder(hints[name])) for name in _field_names(kind)]
    # fields that were added to schema 1 later have a default, for older files
    optional = {field.name for field in fields(kind) if _has_default(field)}

    def build(data: Any) -> Any:
        if _type_of(data) is not dict:
            raise _expected("an object", data)
        given: dict[str, Any] = {}
        for name, build_field in builders:
            if name in data:
                given[name] = _name_part(build_field, data[name], name)
            elif name not in optional:
                raise _WrongData(f"{name} is missing")
        return kind(**given)

    return build


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _name_part(build: _Build, data: Any, part: str) -> Any:
    try:
        return build(data)
    except _WrongData as wrong:
        wrong.path.append(part)
        raise
