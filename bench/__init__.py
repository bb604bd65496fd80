"""What is measured, and how to repeat it: each module prints ratios, measured alternating in one run."""
