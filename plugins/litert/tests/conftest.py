"""Skip these tests if LiteRT is not installed; see README.md for their environment."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore_glob = ["*"] if importlib.util.find_spec("ai_edge_litert") is None else []
