"""Floor 2: which operators exist, and finding the packages that define them."""
