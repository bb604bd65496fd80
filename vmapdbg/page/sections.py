"""The sections of a schedule that `show` and `diff` print and `report` shows. To add a section, write its function in
a module of `page/text/` and name it here. No printer is imported, because `--help` needs only the names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

SECTIONS = {
    "ranges": "nodes:print_nodes",
    "vmap": "nodes:print_vmap_map",
    "bufferize": "kernels:print_bufferizes",
    "kernels": "kernels:print_kernels",
    "source": "source:print_source",
}
"""Section name, as `--only` takes it, -> `module of page/text:function`, in the order of the page. The function adds
lines to the page of a ScheduleView, of one run or two; no lines if nothing changed."""


def load_section(name: str) -> Any:
    """Returns the function of a section; it takes a ScheduleView."""
    module, _, function = SECTIONS[name].partition(":")
    return getattr(import_module(f"vmapdbg.page.text.{module}"), function)
