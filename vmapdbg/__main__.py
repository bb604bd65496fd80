"""`python -m vmapdbg`."""

from vmapdbg.cli import main

main()
