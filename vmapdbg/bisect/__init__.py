"""Finds what changes the outcome of a snippet: sets of patches, single decisions, or a commit of tinygrad. Nothing
here knows tinygrad or runs anything: searches ask for outcomes, and `outcome` compares runs."""

from __future__ import annotations

import re
from typing import get_args

from vmapdbg.model.vocabulary import MeasureKind, OutcomeKind

KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)
"""How outcomes are compared: see `outcome`."""
MEASURES: tuple[MeasureKind, ...] = get_args(MeasureKind)
"""Numbers that `--commits` measures instead: see `measure`."""
KERNEL_COUNT = re.compile(r"(\d+) kernels?")
"""Another kind: whether there is this number of kernels."""
DEFAULT_RUNS = 80
"""How many runs a search may take: nine patches alone, and each one and each pair taken away, are 56; the rest is for
halving. All 512 sets would take eight hours for a snippet of a minute."""
