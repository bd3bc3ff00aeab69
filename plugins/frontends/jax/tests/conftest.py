"""Skip collection without JAX: these tests have an environment of their own, see README.md."""

import importlib.util
import os
import sys
from pathlib import Path

collect_ignore_glob = ["*"] if importlib.util.find_spec("jax") is None else []
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # each program runs once
sys.path.insert(0, str(Path(__file__).parent))
