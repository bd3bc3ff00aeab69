"""Without tokenizers nothing here is collected: these tests have an environment of their own."""

import importlib.util

collect_ignore_glob = ["*"] if importlib.util.find_spec("tokenizers") is None else []
