"""Target files: opsets, types and operators that runtimes and converters support."""
