"""`vmapdbg patches`."""

import click

from vmapdbg.commands.shared import console, options
from vmapdbg.install.patches import PATCHES, Patches, patch_states


@click.command()
@options.patches("Which patches are on: all, none, or a list such as all,-close-ranges.  [default: all]", default="all")
@console.display_options
def patches(patches: Patches) -> None:
    """Show the patches, what each does, and its state.

    \b
    Example:
      vmapdbg patches --patches all,-nested-ranges"""
    from vmapdbg.page.text.run import print_patches

    print_patches(PATCHES, patch_states(patches), console.make_console())
