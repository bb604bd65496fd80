"""What every part speaks: the Capture and its words, as data, as a file, with an index. Nothing here knows tinygrad."""
