"""A net for large changes: `python -m tests.net record` keeps what every command prints, `compare` looks for changes.

It knows nothing of the tool but `python -m vmapdbg`. Both take minutes; `--only`, `--states` and `--views` name a part.
"""
