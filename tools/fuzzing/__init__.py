"""Parts of ``tools/fuzz.py``: seeds, mutations, and trials."""
