"""Without TensorFlow nothing here is collected: the step tensorflow of .ci/run has it."""

import importlib.util

collect_ignore_glob = ["*"] if importlib.util.find_spec("tensorflow") is None else []
