"""Without tokenizers nothing here is collected: these tests have an environment of their own."""

import importlib.util
import sys
from pathlib import Path

collect_ignore_glob = ["*"] if importlib.util.find_spec("tokenizers") is None else []
sys.path.insert(0, str(Path(__file__).parent))
