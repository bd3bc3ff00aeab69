"""Layer 0: types, values, nodes and graphs. Nothing here knows an operator by name or a file format."""
