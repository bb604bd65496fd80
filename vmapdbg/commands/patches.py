"""`vmapdbg patches`."""

from __future__ import annotations

import click

from vmapdbg.commands.shared.console import display_options, make_console
from vmapdbg.commands.shared.options import patches_option
from vmapdbg.install.patches import PATCHES, Patches, patch_states


@click.command()
@patches_option("Which patches are on: all, none, or a list such as all,-close-ranges.  [default: all]", default="all")
@display_options
def patches(patches: Patches) -> None:
    """Show the patches, what each does, and its state.

    \b
    Example:
      vmapdbg patches --patches all,-nested-ranges
    """
    from vmapdbg.page.text.capture import print_patches

    print_patches(PATCHES, patch_states(patches), make_console())
