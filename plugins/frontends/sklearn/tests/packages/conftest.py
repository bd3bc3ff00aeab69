"""Skip collection without pandas and polars: these tests have an environment of their own, see README.md."""

import importlib.util

collect_ignore_glob = ["*"] if any(importlib.util.find_spec(name) is None for name in ("pandas", "polars")) else []
