"""Floor 5: running graphs."""
