"""Output files of onnxruntime's optimizers: run on numpy, and retargeted to plain ``ai.onnx``.

    python benchmarks/optimized_models.py [--opsets 13 17 23] [word ...]

Takes the models of this repository and of the onnx package, or those whose paths contain one of the words.
onnxruntime optimizes each at the levels basic, extended and all, and its transformer optimizer those of
``TRANSFORMERS``. Every output file with vendor ops that differs from those of lower levels is judged twice: run on
numpy, and lowered and then run in onnxruntime. The reference is the file itself in onnxruntime, or the original model
if onnxruntime lacks a kernel. Prints counts of right, refused and wrong, with every reason; exits with 1 if a result is
wrong. The tolerance is 0.1 % of the largest number, or 3 % if only onnxruntime rounds activations to 8 bits, as in
the blockwise products of its optimizer (accuracy_level 4).
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model
from tenonnx_convert.verifying.sizes import feasible_feeds

ROOT = Path(__file__).parents[1]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
#: For parts of paths, the model type for the transformer optimizer.
TRANSFORMERS = {
    "bert": "bert",
    "gpt2": "gpt2",
    "t5": "t5",
    "vit": "vit",
    "transformer": "bert",
    "cnn": "unet",
    "diffusion": "unet",
    "resnet": "unet",
    "whisper": "bart",
    "llama": "gpt2",
}
#: Largest model in bytes.
LARGEST = 20_000_000

Feeds = dict[str, Any]


def models() -> Iterator[Path]:
    for folder in (ROOT / "examples", ROOT / "plugins", ROOT / "quantized", DATA):
        for path in sorted(folder.rglob("*.onnx")):
            if path.stat().st_size < LARGEST:
                yield path


def session(model: Any, level: str = "ORT_DISABLE_ALL", written: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if written is not None:
        options.optimized_model_filepath = str(written)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds_of(path: Path) -> Feeds:
    """The sample inputs next to a model, or random ones."""
    graph = onnx.load(path).graph
    initializers = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in initializers]
    samples, test_data = path.parent / "samples.npz", path.parent / "test_data_set_0"
    if samples.exists():
        with np.load(samples) as arrays:
            if all(name in arrays for name in names):
                return {name: arrays[name] for name in names}
    if (test_data / "input_0.pb").exists():
        result = {}
        for k, name in enumerate(names):
            tensor = onnx.TensorProto.FromString((test_data / f"input_{k}.pb").read_bytes())
            result[name] = onnx.numpy_helper.to_array(tensor)
        return result
    graph = tx.load(path)
    return feasible_feeds(graph, graph.compile("onnxruntime"))[0]


def written(path: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Optimize a model with every optimizer that accepts it; yields the level and the file."""
    for level, name in LEVELS.items():
        target = folder / f"{level}.onnx"
        session(str(path), name, target)
        yield level, target
    kind = next((kind for part, kind in TRANSFORMERS.items() if part in f"{path.parent.name}/{path.name}"), None)
    if kind is not None:
        from onnxruntime.transformers.optimizer import optimize_model

        target = folder / "transformers.onnx"
        optimize_model(str(path), kind, opt_level=0).save_model_to_file(str(target))
        yield "transformers", target


def wanted(model: onnx.ModelProto, path: Path, feeds: Feeds) -> Feeds:
    """Feeds for the inputs of an optimized file, in which onnxruntime may have dropped default inputs."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    missing = [v.name for v in model.graph.input if v.name not in initializers and v.name not in feeds]
    defaults = {t.name: t for t in onnx.load(path).graph.initializer} if missing else {}
    return {**feeds, **{name: onnx.numpy_helper.to_array(defaults[name]) for name in missing}}


def is_close(found: list[Any], expected: list[Any], share: float) -> bool:
    for mine, theirs in zip(found, expected, strict=True):
        if not isinstance(theirs, np.ndarray) or theirs.dtype.kind not in "fc":
            if not np.array_equal(np.asarray(mine, dtype=object), np.asarray(theirs, dtype=object)):
                return False
            continue
        size = np.abs(theirs[np.isfinite(theirs)]).max(initial=1)
        if mine.shape != theirs.shape or not np.allclose(mine, theirs, rtol=share, atol=share * size, equal_nan=True):
            return False
    return True


def judged(path: Path, feeds: Feeds, expected: list[Any], opsets: list[int]) -> Iterator[tuple[str, str]]:
    """Judge a file on numpy and at each opset; yields the judge and right, wrong, or refused with a reason."""
    graph = tx.load(path)
    share = 0.03 if any(node.attributes.get("accuracy_level") == 4 for node in graph.walk()) else 0.001
    found = list(graph.run(feeds, backend="numpy").values())
    yield "numpy", "right" if is_close(found, expected, share) else "wrong"
    for opset_version in opsets:
        try:
            model = to_model(tx.retarget(graph, opset_version, domains=["ai.onnx", "ai.onnx.ml"]))
        except tx.TenonnxError as error:
            yield str(opset_version), f"refused: {error.what}"
            continue
        found = session(model.SerializeToString()).run(None, feeds)
        yield str(opset_version), "right" if is_close(found, expected, share) else "wrong"


def outcomes(path: Path, opsets: list[int]) -> Iterator[tuple[str, str, str]]:
    """Level, judge and outcome of each optimized file of a model; nothing if onnxruntime cannot run the model."""
    try:
        feeds = feeds_of(path)
        untouched = session(str(path)).run(None, feeds)
    except Exception as error:
        print(f"{path}: onnxruntime does not run it: {str(error)[:120]}", file=sys.stderr)
        return
    seen: set[bytes] = set()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for level, written_path in written(path, Path(folder)):
                model = onnx.load(written_path)
                plain = not any(node.domain not in ("", "ai.onnx", "ai.onnx.ml") for node in model.graph.node)
                text = model.graph.SerializeToString()
                if plain or text in seen:
                    continue
                seen.add(text)
                given = wanted(model, path, feeds)
                expected = untouched
                try:
                    expected = session(str(written_path)).run(None, given)
                except Exception as error:  # it lacks a kernel for the file, or wrote an invalid model
                    if "Duplicate definition" in str(error):
                        print(f"{path} {level}: no model: {str(error)[:200]}", file=sys.stderr)
                        continue
                try:
                    for judge, outcome in judged(written_path, given, expected, opsets):
                        yield level, judge, outcome
                except tx.TenonnxError as error:
                    yield level, "numpy", f"refused: {error.what}"
                except Exception as error:
                    yield level, "numpy", f"wrong: {type(error).__name__}: {error}"
        except Exception as error:
            print(f"{path}: not written: {str(error)[:120]}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--opsets", nargs="*", type=int, default=[13, 17, 23])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    tried = files = 0
    for path in models():
        if given.words and not any(word in str(path) for word in given.words):
            continue
        tried += 1
        levels = set()
        for level, judge, outcome in outcomes(path, given.opsets):
            levels.add(level)
            kind = outcome.split(":")[0]
            counts[judge, kind] += 1
            if kind != "right":
                print(f"{path.parent.name}/{path.name} {level} {judge}: {outcome.splitlines()[0]}", flush=True)
        files += len(levels)
    print(f"\n{tried} models, of which {files} files with operators of a vendor were made\n")
    print("| judge | right | refused | wrong |\n| --- | --- | --- | --- |")
    for judge in ("numpy", *map(str, given.opsets)):
        print(f"| {judge} | " + " | ".join(str(counts[judge, kind]) for kind in ("right", "refused", "wrong")) + " |")
    sys.exit(any(kind == "wrong" for _, kind in counts))


if __name__ == "__main__":
    main()
