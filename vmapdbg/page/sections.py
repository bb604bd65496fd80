"""The sections of a schedule that `show` prints.

This module imports nothing: the command line reads the names, and `--help` loads no printer. To add a section, write
its function in a module of `render/text/` and name it here.
"""

from __future__ import annotations

SECTIONS = {
    "ranges": "ranges:format_range_map",
    "vmap": "ranges:format_vmap_map",
    "bufferize": "buffers:format_bufferizes",
    "kernels": "kernels:format_kernels",
    "source": "source:format_source",
}
"""The name of each section, as `--only` takes it, and its printer as `module of render/text:function`. The function
gets a ScheduleView and returns lines. The order is that in which they are printed."""
