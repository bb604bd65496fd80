"""What tinygrad did: every hook on tinygrad, every difference between its releases, and the records of what happened.

Any stock tinygrad from 0.12.0 on is observed; no code is replaced. An import hook notes the tests of the functions that
decide (decisions.py), a recording dict what puts a node into the realize map, a watched RewriteContext follows each
buffer, store and kernel to its node (hooks.py, pass_recorder.py). Each schedule becomes a plain record (records.py)."""
