"""These tests need Ray and Spark, in an environment of their own: see requirements.txt."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("ray") and find_spec("pyspark") else ["test_*.py"]
