"""Whole programs: what each test scheduled, saved in a folder, and two such runs compared; without tinygrad."""
