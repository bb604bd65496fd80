"""Writes the JSON Schemas (draft 2020-12) of the tool's documents to `vmapdbg/schemas/`, where they are shipped.

python -m docs.make_schemas
"""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.store import SCHEMAS
from vmapdbg.page.documents import DOCUMENTS

_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}


def make_schema(kind: str, document: type) -> dict[str, Any]:
    """Returns the schema of a document from its dataclass.

    A field without a default is required; fields that were added later have a default. Unknown fields are allowed,
    because later versions may add fields. An enumeration lists the words of this version.
    """
    definitions: dict[str, Any] = {}
    root = _describe_dataclass(document, definitions)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:vmapdbg:{kind}:{SCHEMA}",
        "title": f"vmapdbg {kind}, schema {SCHEMA}",
    }
    return {**head, **root, "$defs": dict(sorted(definitions.items()))}


def _describe_dataclass(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return {
        "description": " ".join(inspect.cleandoc(kind.__doc__ or "").split()),
        "type": "object",
        "properties": {f.name: _describe(hints[f.name], definitions) for f in fields(kind)},
        "required": required,
    }


def _describe(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            # the name is added first, because a dataclass may contain itself
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = _describe_dataclass(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin is Annotated:
        # an OPEN list is a string, annotated with its words
        return _describe(args[1], definitions)
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _describe(args[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _describe(args[1], definitions)}
    if origin in (typing.Union, types.UnionType):
        options = [_describe(option, definitions) for option in args]
        if any(option.keys() != {"type"} for option in options):
            return {"anyOf": options}
        return {"type": [option["type"] for option in options]}
    return {"type": _PLAIN[kind]}


def dump_schema(kind: str, document: type) -> str:
    """Returns a schema as JSON text."""
    return json.dumps(make_schema(kind, document), indent=1) + "\n"


def schema_file(kind: str) -> Path:
    """Returns the file with the shipped schema of a kind of document."""
    return SCHEMAS / f"{kind}.json"


def main() -> None:
    SCHEMAS.mkdir(exist_ok=True)
    for kind, document in DOCUMENTS.items():
        schema_file(kind).write_text(dump_schema(kind, document), encoding="utf-8")
        sys.stdout.write(f"{schema_file(kind)}\n")


if __name__ == "__main__":
    main()
