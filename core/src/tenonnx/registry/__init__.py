"""Layer 2: the registry of operators, and the discovery of packages that define them."""
