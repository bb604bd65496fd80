"""What the values of a graph should be, computed anew, and where the first wrong one is."""
