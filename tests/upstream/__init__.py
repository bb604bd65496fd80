"""Runs tinygrad's own tests on stock tinygrad and on the overlay, and compares them test by test.

`python -m tests.upstream` from the root of the checkout. A failure means: a program that works on tinygrad
0.12.0 does something else once vmapdbg's overlay is installed, although it uses nothing of it.

    fetch.py           tinygrad's sdist from the package index, or a clone -> its test folder, in .cache/upstream
    sides.py           one run of pytest, on stock or on the overlay -> SideResult
    compare.py         (SideResult, SideResult) -> the differences
    fusion.py          the differences that fuse-broadcast makes, as fewer_kernels.toml lists them
    check.py           what `vmapdbg run --check` says about upstream's tests, on any tinygrad
    plugin/            pytest plugins: what both runs load (outcomes, AST keys, workers), and draws at once
"""
