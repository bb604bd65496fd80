"""What is typed: one module for each command, and what they share.

A command imports what computes and prints its result when it gets there: --help and usage errors need not wait for it.
"""
