"""The data that all parts share: the Capture, its vocabulary, its file and its index. Nothing here knows tinygrad."""
