"""`vmapdbg schema`."""

import sys

import click

from vmapdbg.model.store import SCHEMAS

_FILES = {file.stem: file for file in sorted(SCHEMAS.iterdir())}


@click.command()
@click.argument("document", type=click.Choice(tuple(_FILES)))
def schema(document: str) -> None:
    """Print the JSON Schema (draft 2020-12) of a DOCUMENT that another command writes.

    \b
    Example:
      vmapdbg schema capture > capture.schema.json"""
    sys.stdout.write(_FILES[document].read_text(encoding="utf-8"))
