"""Data files: what runtimes and converters take, by their documentation. ``transforms/profiles.py`` reads them."""
