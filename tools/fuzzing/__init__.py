"""What ``tools/fuzz.py`` is made of: seeds, mutations, and what is tried with each mutant."""
