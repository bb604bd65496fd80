"""`vmapdbg schema`."""

from __future__ import annotations

import sys
from typing import get_args

import click

from vmapdbg.model.vocabulary import DocumentKind


@click.command()
@click.argument("document", type=click.Choice(get_args(DocumentKind)))
def schema(document: DocumentKind) -> None:
    """Print the JSON Schema (draft 2020-12) of a DOCUMENT that another command writes.

    \b
    Example:
      vmapdbg schema capture > capture.schema.json
    """
    from vmapdbg.page.documents import schema_file

    sys.stdout.write(schema_file(document).read_text(encoding="utf-8"))
