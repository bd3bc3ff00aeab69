"""Skip these tests if PyTorch is not installed; the step torch of .ci/run installs it."""

import importlib.util

collect_ignore_glob = ["*"] if importlib.util.find_spec("torch") is None else []
