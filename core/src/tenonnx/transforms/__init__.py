"""Layer 3: transforms of graphs, built on one rewriter that keeps or replaces each call."""
