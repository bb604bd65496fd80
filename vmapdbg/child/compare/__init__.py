"""Computes what the values of a graph should be, and finds the first wrong value."""
