"""Finds the smallest sets of patches that change what comes of a snippet.

Nothing here knows tinygrad or runs anything: `search` asks for the outcome of sets, `outcome` tells outcomes apart.
"""
