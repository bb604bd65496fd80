"""`import vmapdbg.patched` at the top of a program, before tinygrad is imported, patches tinygrad in it.

All patches are on, or the patches in `VMAPDBG_PATCHES`, written as for `--patches`. Does nothing under `vmapdbg run` or
in a snippet, which have the overlay already. Python processes that the program starts get the same overlay. Raises
OverlayError (an ImportError) if tinygrad is imported already or is not 0.12.0, or for an unknown patch."""

import os

from vmapdbg.install.overlay import PATCHES_VARIABLE, OverlayError, child_environment, install, is_installed
from vmapdbg.install.patches import PatchError, format_patches, parse_patches

if not is_installed():
    try:
        patches = format_patches(parse_patches(os.environ.get(PATCHES_VARIABLE, "all")))
    except PatchError as error:
        raise OverlayError(f"{PATCHES_VARIABLE}: {error}") from None
    install(patches)
    os.environ.update(child_environment(patches, dict(os.environ)))
