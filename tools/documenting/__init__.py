"""The parts that the site is made of."""
