"""Tests that need Ray and Spark in a separate environment: see requirements.txt."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("ray") and find_spec("pyspark") else ["test_*.py"]
