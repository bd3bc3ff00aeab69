"""Python source of the bodies of an op, printed as JSON: ``python -m tenonnx_serve.op_sources NAME``."""

from __future__ import annotations

import inspect
import json
import sys

from tenonnx import default_registry


def op_sources(name: str) -> dict[str, str]:
    """The source of each function that defines the op ``name``, by module and name; primitives have none."""
    domain, _, wanted = name.rpartition("::")
    result = {}
    for op in default_registry().ops(domain or None):
        if op.name == wanted and not op.primitive:
            try:
                result[f"{op.__module__}.{op.__name__}"] = inspect.getsource(op.function)
            except (OSError, TypeError):
                continue  # generated at run time
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(op_sources(sys.argv[1])))
