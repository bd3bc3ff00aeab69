"""Start-up: importing, and asking the command line for help, as whole processes with bytecode cached."""

from __future__ import annotations

from measure import processes, python, table


def main() -> None:
    found = processes({
        "import numpy": python("import numpy"),
        "import onnx": python("import onnx"),
        "import tenonnx": python("import tenonnx"),
        "tenonnx with its names": python("import tenonnx; tenonnx.load"),
        "tenonnx and the standard family": python("import tenonnx as tx; tx.default_registry().load('ai.onnx')"),
        "import onnx_ir": python("import onnx_ir"),
        "tenonnx --help": ["tenonnx", "--help"],
        "python -c pass": python("pass"),
    })  # fmt: skip
    numpy, onnx = found["import numpy"][0], found["import onnx"][0]
    rows = [[name, seconds * 1e3, seconds / numpy, seconds / onnx] for name, (seconds, _) in found.items()]
    table("Start-up", ["", "milliseconds", "times import numpy", "times import onnx"], rows)


if __name__ == "__main__":
    main()
