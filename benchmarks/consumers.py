"""Share of models that a runtime computes correctly, before and after conversion to its measured target.

The models are the 40 of ``small_models`` and those of the onnx wheel with sample inputs and outputs:

    python benchmarks/consumers.py tract --target tract --python ENV/bin/python
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from small_models import small_models

import tenonnx as tx
from tenonnx_run.runner import FunctionRunner

#: Folders of models in the onnx wheel.
FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")


def cases(folder: Path) -> Iterator[tuple[str, Path, Mapping[str, Any], list[Any]]]:
    """Name, file, feeds and outputs of each model."""
    for name, (graph, feeds) in small_models().items():
        path = folder / f"{name}.onnx"
        tx.export(graph, path)
        yield name, path, feeds, list(graph.run(feeds, backend="numpy").values())
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(each for kind in FOLDERS for each in (data / kind).glob("*/model.onnx")):
        data_set = path.parent / "test_data_set_0"
        tensors = [[_tensor(file) for file in _numbered(data_set, kind)] for kind in ("input", "output")]
        if any(each is None for kind in tensors for each in kind):
            continue  # sequences and optionals
        names = [value.name for value in tx.load(path).inputs]
        yield path.parent.name, path, dict(zip(names, tensors[0], strict=False)), tensors[1]


def _numbered(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))


def _tensor(file: Path) -> Any:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(file.read_bytes())
        return onnx.numpy_helper.to_array(tensor)
    except Exception:
        return None


def outcome(runner: FunctionRunner, path: Path, feeds: Mapping[str, Any], wanted: list[Any]) -> str:
    """Run a file in the runtime; returns right, wrong or the name of an error."""
    try:
        names = [value.name for value in onnx.load(path).graph.output]
        found = runner(path, feeds, names)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), 1e-3, 1e-4)
    except tx.TenonnxError as error:
        return type(error).__name__
    except (AssertionError, TypeError, ValueError):
        return "wrong"
    return "right"


def converted(path: Path, folder: Path, target: str) -> Path | None:
    """Convert a file to the target; None if a node cannot be converted."""
    try:
        graph = tx.retarget(tx.load(path), target=target)
    except tx.TenonnxError:
        return None
    moved = folder / "moved.onnx"
    tx.export(graph, moved)
    return moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner", help="a function of tenonnx_testing.runners")
    parser.add_argument("--target", required=True)
    parser.add_argument("--python", default="")
    parser.add_argument("--all", action="store_true", help="list the models that fail afterwards")
    options = parser.parse_args()
    before, after = Counter[str](), Counter[str]()
    runner = FunctionRunner(f"tenonnx_testing.runners:{options.runner}", 20.0, options.python)
    with TemporaryDirectory() as place:
        for name, path, feeds, wanted in cases(Path(place)):
            first = outcome(runner, path, feeds, wanted)
            moved = converted(path, Path(place), options.target)
            second = "no form" if moved is None else outcome(runner, moved, feeds, wanted)
            before[first] += 1
            after[second] += 1
            if options.all and second != "right":
                print(f"  {name}: {first}, then {second}")
    runner.close()
    count = before.total()
    print(
        f"| {options.target} | {count} | {before['right'] / count:.1%} | {after['right'] / count:.1%} | {dict(after)} |"
    )


if __name__ == "__main__":
    main()
