"""The code of tinygrad's deciding modules with tests that keep what they see (`decisions.py`), in a cache of the tool,
one file a module: making it takes a tenth of a small run. A process without the tool would load a .pyc, too."""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from types import CodeType

from vmapdbg.child.listen import decisions
from vmapdbg.install.trees import cache_folder
from vmapdbg.model.store import StoreError, write_atomically

_DIGEST_SIZE = hashlib.sha256().digest_size
# no home, a cache that cannot be read or written, a file that something else has written
_UNUSABLE = (OSError, RuntimeError, StoreError, ValueError, EOFError, TypeError, AttributeError, pickle.PickleError)


def compile_deciding(source: bytes, filename: str) -> CodeType | None:
    """Returns the code of a module whose deciding functions keep what they see, None if it has none; from then on
    `decisions.deciding_of` knows them. Raises SyntaxError."""
    version = f"{importlib.util.MAGIC_NUMBER} {sys.flags.optimize} {filename}"
    made_from = b"\0".join([version.encode(), Path(decisions.__file__).read_bytes(), source])
    with suppress(*_UNUSABLE):
        content = _kept_file(filename).read_bytes()
        digest, packed = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        if digest == hashlib.sha256(made_from + packed).digest():
            marshalled, functions = pickle.loads(packed)
            decisions.know(filename, functions)
            return marshal.loads(marshalled)
    tree, functions = decisions.instrument(source, filename)
    code = compile(tree, filename, "exec", dont_inherit=True) if functions else None
    decisions.know(filename, functions)
    with suppress(*_UNUSABLE):
        packed = pickle.dumps((marshal.dumps(code), functions))
        kept = _kept_file(filename)
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, hashlib.sha256(made_from + packed).digest() + packed)
    return code


def _kept_file(filename: str) -> Path:
    return cache_folder() / "deciding" / hashlib.sha256(filename.encode()).hexdigest()[:32]
