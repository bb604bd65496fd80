"""What `run --check` looks at a program with: as `check` does at a snippet, but for one call of `Tensor.realize` at a
time. `overlay` with our patches, or `observe` as tinygrad is; only the one that is asked for is imported."""
