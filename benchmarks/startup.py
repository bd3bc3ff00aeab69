"""Start-up: importing, and commands on a small file, as whole processes with bytecode cached."""

from __future__ import annotations

from pathlib import Path

from measure import processes, python, table

DIGITS = str(Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx")


def main() -> None:
    found = processes({
        "import numpy": python("import numpy"),
        "import onnx": python("import onnx"),
        "import tenonnx": python("import tenonnx"),
        "tenonnx with its names": python("import tenonnx; tenonnx.load"),
        "tenonnx and the standard family": python("import tenonnx as tx; tx.default_registry().load('ai.onnx')"),
        "import onnx_ir": python("import onnx_ir"),
        "tenonnx --help": ["tenonnx", "--help"],
        "tenonnx targets": ["tenonnx", "targets"],
        "tenonnx inspect digits.onnx": ["tenonnx", "inspect", DIGITS],
        "tenonnx plan digits.onnx --opset 13": ["tenonnx", "plan", DIGITS, "--opset", "13"],
        "python -c pass": python("pass"),
    })  # fmt: skip
    numpy, onnx = found["import numpy"][0], found["import onnx"][0]
    rows = [[name, seconds * 1e3, seconds / numpy, seconds / onnx] for name, (seconds, _) in found.items()]
    table("Start-up", ["", "milliseconds", "times import numpy", "times import onnx"], rows)


if __name__ == "__main__":
    main()
