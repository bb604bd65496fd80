"""`python -m vmapdbg`."""

from vmapdbg.commands.cli import main

main()
