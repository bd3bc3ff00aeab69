"""Layer 3: transforms of graphs, built on one rewriter that asks for each call whether to keep or replace it."""
