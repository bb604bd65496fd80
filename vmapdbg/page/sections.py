"""The sections of a schedule that `show` and `diff` print.

This module imports nothing: the command line reads the names, and `--help` loads no printer. To add a section, write
its function in a module of `page/text/` and name it here.
"""

from __future__ import annotations

SECTIONS = {
    "ranges": "nodes:format_nodes",
    "vmap": "nodes:format_vmap_map",
    "bufferize": "buffers:format_bufferizes",
    "kernels": "kernels:format_kernels",
    "source": "source:format_source",
}
"""The name of each section, as `--only` takes it, and its function as `module of page/text:function`, in the order of
the page. The function gets a ScheduleView, of one run or of two, and returns lines; no lines if nothing changed."""
