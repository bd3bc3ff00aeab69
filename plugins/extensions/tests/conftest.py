"""Skips collection without tokenizers: these tests need a separate environment."""

import importlib.util
import sys
from pathlib import Path

collect_ignore_glob = ["*"] if importlib.util.find_spec("tokenizers") is None else []
sys.path.insert(0, str(Path(__file__).parent))
