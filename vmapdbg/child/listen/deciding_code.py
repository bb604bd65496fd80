"""The code of tinygrad's deciding modules with tests that keep what they see (`decisions.py`), in a cache of the tool,
one file a module: making it takes a tenth of a small run. A process without the tool would load a .pyc, too."""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import pickle
import sys
from pathlib import Path
from types import CodeType

from vmapdbg.child.listen import decisions
from vmapdbg.install.trees import keep, read_kept
from vmapdbg.model import ops

_DIGEST_SIZE = hashlib.sha256().digest_size


def compile_deciding(source: bytes, filename: str) -> CodeType | None:
    """Returns the code of a module whose deciding functions keep what they see, None if it has none; from then on
    `decisions.deciding_of` knows them. Raises SyntaxError."""
    version = f"{importlib.util.MAGIC_NUMBER} {sys.flags.optimize} {filename}"
    # `decisions` takes nothing from other modules but what `ops` says
    made_by = [Path(str(module.__file__)).read_bytes() for module in (decisions, ops)]
    made_from = b"\0".join([version.encode(), *made_by, source])
    kept = f"deciding/{hashlib.sha256(filename.encode()).hexdigest()[:32]}"
    content = read_kept(kept)
    digest, packed = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if digest == hashlib.sha256(made_from + packed).digest():
        marshalled, functions = pickle.loads(packed)
        decisions.know(filename, functions)
        return marshal.loads(marshalled)
    tree, functions = decisions.instrument(source, filename)
    code = compile(tree, filename, "exec", dont_inherit=True) if functions else None
    decisions.know(filename, functions)
    packed = pickle.dumps((marshal.dumps(code), functions))
    keep(kept, hashlib.sha256(made_from + packed).digest() + packed)
    return code
