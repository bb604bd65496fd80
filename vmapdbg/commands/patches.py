"""`vmapdbg patches`."""

from __future__ import annotations

import click

from vmapdbg.commands.console import make_console
from vmapdbg.commands.options import patches_option
from vmapdbg.install.patches import PATCHES, Patches, patch_states


@click.command()
@patches_option
def patches(patches: Patches) -> None:
    """Show the patches, what each does, and its state.

    \b
    Example:
      vmapdbg patches --patches all,-nested-ranges
    """
    from vmapdbg.page.text.capture import print_patches

    print_patches(PATCHES, patch_states(patches), make_console())
