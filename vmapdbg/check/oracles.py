"""The oracles that `vmapdbg check` can compare with, by name, without importing one."""

from __future__ import annotations

DEFAULT = "stock"
ORACLES = {
    "stock": "stock tinygrad, each vmap scope unrolled",
    "python": "the PYTHON device",
}
"""Name -> what it is, as part of a sentence. The default comes first."""
