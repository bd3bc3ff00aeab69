"""Without pandas and polars nothing here is collected: these have an environment of their own, see README.md."""

import importlib.util

collect_ignore_glob = ["*"] if any(importlib.util.find_spec(name) is None for name in ("pandas", "polars")) else []
