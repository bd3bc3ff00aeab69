"""Without PyTorch nothing here is collected: the step torch of .ci/run has it."""

import importlib.util

collect_ignore_glob = ["*"] if importlib.util.find_spec("torch") is None else []
