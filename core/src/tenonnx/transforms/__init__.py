"""Layer 3: transforms of graphs. They share one rewriter, and differ in what they decide about a call."""
