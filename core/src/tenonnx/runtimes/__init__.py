"""Data files: what runtimes and converters take, by their documentation. ``transforms/runtimes.py`` reads them."""
