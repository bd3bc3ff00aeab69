"""Layer 0: types, values, nodes and graphs, independent of operators and file formats."""
