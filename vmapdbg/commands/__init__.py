"""The subcommands, one module each: `vmapdbg NAME` is the function NAME of the module NAME.

A module with an underscore in its name (bisect_searches) is part of a command. What the commands share is in `shared/`.
A command imports the modules that compute and print its result when it needs them, so that --help and usage errors are
fast.
"""
