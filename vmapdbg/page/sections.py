"""The sections of a schedule. To add one, name its function in `page/text/` here. `--help` imports no printer."""

from pkgutil import resolve_name
from typing import Any

SECTIONS = {
    "ranges": "nodes:print_nodes",
    "vmap": "nodes:print_vmap_map",
    "bufferize": "kernels:print_bufferizes",
    "kernels": "kernels:print_kernels",
    "source": "source:print_source",
}
"""Section name -> `module of page/text:function`, in the page's order; it adds no lines if nothing changed."""


def load_section(name: str) -> Any:
    """Returns the function of a section; it takes a ScheduleView."""
    return resolve_name(f"vmapdbg.page.text.{SECTIONS[name]}")
