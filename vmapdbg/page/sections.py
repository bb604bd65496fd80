"""The sections of a schedule that `show` and `diff` print.

This module imports nothing: the command line reads the names, and `--help` loads no printer. To add a section, write
its function in a module of `page/text/` and name it here.
"""

from __future__ import annotations

SECTIONS = {
    "ranges": "nodes:print_nodes",
    "vmap": "nodes:print_vmap_map",
    "bufferize": "buffers:print_bufferizes",
    "kernels": "kernels:print_kernels",
    "source": "source:print_source",
}
"""The name of each section, as `--only` takes it, and its function as `module of page/text:function`, in the order of
the page. The function adds lines to the page of a ScheduleView, of one run or of two; no lines if nothing changed."""
