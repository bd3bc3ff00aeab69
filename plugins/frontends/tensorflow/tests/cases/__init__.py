"""Cases by kind: each module has a table ``CASES`` from names to cases."""
