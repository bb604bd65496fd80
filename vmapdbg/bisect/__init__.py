"""Finds the smallest sets of patches that change what comes of a snippet.

Nothing here knows tinygrad or runs anything: `search` asks for the outcome of sets, `outcome` tells outcomes apart.
"""

from __future__ import annotations

import re
from typing import get_args

from vmapdbg.model.vocabulary import OutcomeKind

KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)
"""By what outcomes are told apart: see `outcome`."""
KERNEL_COUNT = re.compile(r"(\d+) kernels?")
"""A kind besides them: whether there are so many kernels."""
DEFAULT_RUNS = 64
"""How many runs a search may take. Of eight patches that is each one alone, each one and each two taken away (46
runs), and what it takes to go on by halves. All 256 sets of a snippet that runs for a minute would take four hours."""
