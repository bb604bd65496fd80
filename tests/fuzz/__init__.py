"""Random vmapped programs: drawn, run, compared with a loop over single elements, and made small if they fail."""
