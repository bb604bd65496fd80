"""Finds what changes a snippet's outcome: patches, single decisions, or a commit of tinygrad. Runs nothing itself."""

import re
from typing import get_args

from vmapdbg.model.vocabulary import MeasureKind, OutcomeKind

KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)  # how outcomes are compared: see `outcome`
MEASURES: tuple[MeasureKind, ...] = get_args(MeasureKind)  # numbers that `--commits` measures instead: see `measure`
KERNEL_COUNT = re.compile(r"(\d+) kernels?")  # another kind: whether there is this number of kernels
DEFAULT_RUNS = 80
"""The most runs of a search: 56 for no, one, all, all but one and all but two of nine patches; the rest for halving."""
