"""Follows the value of a schedule's outputs through the passes of tinygrad's scheduler. Runs in the child."""
