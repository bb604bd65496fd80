"""Facts about kernels, from their linear programs: work, accesses, bounds of addresses."""
