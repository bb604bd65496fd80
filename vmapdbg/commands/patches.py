"""`vmapdbg patches`."""

from __future__ import annotations

import click

from vmapdbg.commands.options import make_console, patches_option
from vmapdbg.patches import ALL, PATCHES, Patches, patch_states


@click.command()
@patches_option
def patches(patches: Patches | None) -> None:
    """Show the patches, what each does, and its state.

    \b
    Example:
      vmapdbg patches --patches all,-nested-ranges
    """
    from vmapdbg.render.text.capture import print_patches

    chosen = ALL if patches is None else patches
    print_patches(PATCHES, patch_states(chosen), make_console())
