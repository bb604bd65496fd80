"""`import vmapdbg.patched` at the top of a program, before tinygrad is imported, patches tinygrad in it.

All patches are on, or the patches in `VMAPDBG_PATCHES`; under `vmapdbg run` and in a snippet the overlay is there
already, with the patches of the command, and this import does nothing. Python processes that the program starts get
the same overlay. Raises OverlayError (an ImportError) when tinygrad is imported already, or is not 0.12.0.
"""

import os

from vmapdbg.install.overlay import PATCHES_VARIABLE, child_environment, install, is_installed
from vmapdbg.install.patches import ALL, format_patches

if not is_installed():
    patches = os.environ.get(PATCHES_VARIABLE, format_patches(ALL))
    install(patches)
    os.environ.update(child_environment(patches, dict(os.environ)))
