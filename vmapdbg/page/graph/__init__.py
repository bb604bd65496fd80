"""Results as graphs: DOT, drawn as SVG, PNG or PDF."""
