"""Skip these tests if PyTorch is not installed; the environment is that of tenonnx-torch, see README.md."""

import importlib.util
import sys
from pathlib import Path

collect_ignore_glob = ["*"] if importlib.util.find_spec("torch") is None else []

sys.path.insert(0, str(Path(__file__).parent))
