"""A program: ``onnx.checker`` on the model of standard input, or of a path; its objection goes to standard output.

It loads the compiled part of onnx alone, by its path, as importing the whole package takes twenty times as long.
"""

from __future__ import annotations

import importlib.util
import sys


def main(extension: str, path: str, inferred: bool) -> int:
    """Exit code 0 where the model passes, 3 where it does not."""
    spec = importlib.util.spec_from_file_location("onnx_cpp2py_export", extension)
    assert spec is not None
    assert spec.loader is not None
    onnx = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(onnx)
    try:
        if path:
            onnx.checker.check_model_path(path, inferred, False, False)
        else:
            onnx.checker.check_model(sys.stdin.buffer.read(), inferred, False, False)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3] == "inferred"))
