"""Skip these tests if TensorFlow is not installed; the step tensorflow of .ci/run installs it."""

import importlib.util

collect_ignore_glob = ["*"] if importlib.util.find_spec("tensorflow") is None else []
