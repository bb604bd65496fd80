"""The sections of a schedule that `show` and `diff` print and `report` shows.

This module imports no printer: the command line reads the names for `--help`. To add a section, write its function in a
module of `page/text/` and name it here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

SECTIONS = {
    "ranges": "nodes:format_nodes",
    "vmap": "nodes:format_vmap_map",
    "bufferize": "buffers:format_bufferizes",
    "kernels": "kernels:format_kernels",
    "source": "source:format_source",
}
"""The name of each section, as `--only` takes it, and its function as `module of page/text:function`, in the order of
the page. The function gets a ScheduleView, of one run or of two, and returns lines; no lines if nothing changed."""


def load_section(name: str) -> Any:
    """Returns the function of a section: ScheduleView -> list[Text]."""
    module, _, function = SECTIONS[name].partition(":")
    return getattr(import_module(f"vmapdbg.page.text.{module}"), function)
