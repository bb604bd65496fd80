"""The subcommands, one module each: `vmapdbg NAME` is the function NAME of the module NAME; a NAME with an underscore
(bisect_searches) is part of a command. What they share is in `shared/`. A command imports what computes and prints its
result when it needs it, so that --help and usage errors are fast."""
