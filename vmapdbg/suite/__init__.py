"""Whole programs: what each test of a run scheduled, saved in a folder, and two such runs compared. Nothing here knows
tinygrad."""
