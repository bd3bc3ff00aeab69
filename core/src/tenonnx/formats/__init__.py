"""Layer 4: reading and writing graphs."""
