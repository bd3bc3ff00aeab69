"""Seeds, mutants and trials for files other than ONNX: frameworks, boosters, arrays, scoring and training."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import tempfile
import traceback
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SEEDS = Path(__file__).with_name("formats.zip")

#: Contents of the file next to a mutant's folder, which nothing may overwrite.
CANARY = b"CANARYCANARYCANARYCANARY"

#: Placeholder in a manifest for its folder, and the modification time of all files in nanoseconds.
HERE, MODIFIED = b"@FOLDER@", 1_700_000_000_000_000_000

#: The files of a seed by their relative paths.
Files = dict[str, bytes]

#: Replacements for a JSON value.
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31 - 1,
    2**31,
    2**62,
    -(2**63),
    10**40,
    1e308,
    -0.5,
    "",
    "x",
    "../canary",
    "/etc/hostname",
    "file:///etc/hostname",
    "__import__",
    "os",
    "system",
    "Lambda",
    [],
    {},
    [[]] * 3,
    [0] * 3000,
    "9" * 5000,
]

#: Replacements for four bytes.
WORDS = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1\0\0\0", b"\xfe\xff\xff\xff"]


# ----- mutants --------------------------------------------------------------------------------------------------------


def mutant(files: Files, dice: random.Random) -> Files:
    """The files of a seed, one of them with one to three changes."""
    changed = dict(files)
    for _ in range(dice.choice((1, 1, 2, 3))):
        name = dice.choice([name for name in sorted(changed) if name != "model.onnx"])
        changed[name] = _changed(changed[name], dice)
    return changed


def _changed(data: bytes, dice: random.Random) -> bytes:
    if zipfile.is_zipfile(io.BytesIO(data)) and dice.random() < 0.8:
        with contextlib.suppress(
            zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, zlib.error
        ):
            return _zip(data, dice)
    if data[:1] in (b"{", b"[") and dice.random() < 0.8:
        with contextlib.suppress(ValueError):
            return _lines(data, dice)
    return _text(data, dice) if data.isascii() and dice.random() < 0.7 else _bytes(data, dice)


def _zip(data: bytes, dice: random.Random) -> bytes:
    """The archive with one member changed, duplicated, renamed or removed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = dice.randrange(len(members))
    name, contents = members[place]
    what = dice.random()
    if what < 0.85:
        members[place] = (name, _changed(contents, dice))
    elif what < 0.9:
        members.append((name, _bytes(contents, dice)))
    elif what < 0.95:
        members[place] = (dice.choice(["../canary", "/tmp/x", "", name + "x"]), contents)
    else:
        members.pop(place)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, contents in members:
            archive.writestr(zipfile.ZipInfo(name), contents)
    return out.getvalue()


def _lines(data: bytes, dice: random.Random) -> bytes:
    """A JSON or JSON Lines file with one value changed."""
    whole = b"\n" not in data.strip()
    lines = [data] if whole else data.splitlines()
    try:
        place = dice.randrange(len(lines))
        lines[place] = json.dumps(_json(json.loads(lines[place]), dice)).encode()
    except ValueError:  # one document of several lines
        return json.dumps(_json(json.loads(data), dice)).encode()
    return b"\n".join(lines)


def _json(document: Any, dice: random.Random) -> Any:
    """A document with a random value replaced, removed or deeply nested in lists."""
    at = document
    while isinstance(at, dict | list) and at:
        key = dice.choice(sorted(at)) if isinstance(at, dict) else dice.randrange(len(at))
        if not (isinstance(at[key], dict | list) and at[key]) or dice.random() < 0.12:
            what = dice.random()
            if what < 0.1:
                del at[key]
            elif what < 0.15:
                at[key] = json.loads("[" * 300 + "]" * 300)
            elif what < 0.3 and isinstance(at[key], int | float):
                at[key] = at[key] + dice.choice((-1, 1, 1000))
            elif what < 0.35 and isinstance(at, dict):
                at[key] = at[dice.choice(sorted(at))]
            else:
                at[key] = dice.choice(ODD)
            break
        at = at[key]
    return document


def _text(data: bytes, dice: random.Random) -> bytes:
    """Text with one word changed, or one line duplicated or removed."""
    lines = data.split(b"\n")
    place = dice.randrange(len(lines))
    what = dice.random()
    if what < 0.1:
        lines.pop(place)
    elif what < 0.2:
        lines.insert(place, lines[dice.randrange(len(lines))])
    else:
        words = lines[place].replace(b"=", b" = ").split(b" ")
        words[dice.randrange(len(words))] = str(dice.choice(ODD))[:200].encode()
        lines[place] = b" ".join(words).replace(b" = ", b"=")
    return b"\n".join(lines)


def _bytes(data: bytes, dice: random.Random) -> bytes:
    """Bytes with a few of them changed, removed, moved or inserted."""
    if not data:
        return bytes(dice.randrange(9))
    place, what = dice.randrange(len(data)), dice.random()
    if what < 0.35:
        return data[:place] + bytes([data[place] ^ (1 << dice.randrange(8))]) + data[place + 1 :]
    if what < 0.65:
        place -= place % 4
        return data[:place] + dice.choice(WORDS) + data[place + 4 :]
    if what < 0.75:
        return data[:place]
    length = dice.randrange(1, 40)
    if what < 0.85:
        return data[:place] + data[place + length :]
    start = dice.randrange(len(data))
    return data[:place] + data[start : start + length] + data[place:]


# ----- trials ---------------------------------------------------------------------------------------------------------


def _model(name: str) -> Callable[[Path], None]:
    def trial(folder: Path) -> None:
        import tenonnx as tx

        graph = tx.load(folder / name if name else folder)
        tx.infer(graph, strict=False)
        written = io.BytesIO()
        tx.export(graph, written)
        if CANARY in written.getvalue():
            raise AssertionError("contents from outside the folder")

    return trial


def _arrays(folder: Path) -> None:
    import tenonnx as tx
    from tenonnx_cli.arrays import read_feeds

    graph = tx.load(folder / "model.onnx")
    graph.run(read_feeds(graph, (), str(folder / "feeds.npz")), backend="numpy")


def _scores(folder: Path) -> None:
    import tenonnx as tx

    tx.score(folder / "model.onnx", str(folder / "data.npy"), folder / "out")


#: The reader of each kind of files.
TRIALS: Mapping[str, Callable[[Path], None]] = {
    "lightgbm": _model("m.txt"),
    "xgboost-json": _model("m.json"),
    "xgboost-ubj": _model("m.ubj"),
    "npz": _arrays,
    "manifest": _scores,
    "shards": _model("c.shards"),
    "keras": _model("m.keras"),
    "h5": _model("m.h5"),
    "savedmodel": _model(""),
    "tflite": _model("m.tflite"),
    "pt2": _model("m.pt2"),
}


def attempt(kind: str, files: Files, *, trace: bool = False) -> dict[str, str]:
    """Read a file; the outcome is ``ok``, the name of our error, or a finding: ``!`` and a foreign exception."""
    import tenonnx as tx

    with tempfile.TemporaryDirectory() as outside:
        (Path(outside) / "canary").write_bytes(CANARY)
        folder = Path(outside) / "inside"
        _write(folder, files)
        try:
            TRIALS[kind](folder)
            outcome = "ok"
        except tx.TenonnxError as error:
            foreign = isinstance(error, tx.PluginError) and error.__cause__
            outcome = f"!{type(foreign).__name__} as a PluginError" if foreign else type(error).__name__
            if foreign and trace:
                traceback.print_exc()
        except Exception as error:
            if trace:
                traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome = f"!{type(error).__name__} in {Path(where.filename).name}:{where.lineno}"
        if (Path(outside) / "canary").read_bytes() != CANARY or len(list(Path(outside).iterdir())) > 2:
            outcome = "!written outside the folder"
    return {kind: outcome}


def _write(folder: Path, files: Files) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.replace(HERE, str(folder).encode()) if name.endswith(".jsonl") else data)
        os.utime(path, ns=(MODIFIED, MODIFIED))


# ----- seeds ----------------------------------------------------------------------------------------------------------


def seeds() -> dict[str, Files]:
    """The files of each kind."""
    result: dict[str, Files] = {}
    with zipfile.ZipFile(SEEDS) as archive:
        for name in sorted(archive.namelist()):
            kind, _, path = name.partition("/")
            result.setdefault(kind, {})[path] = archive.read(name)
    return result


def collect() -> None:
    """Rebuild the seeds of the installed packages; the others stay unchanged."""
    collected = seeds() if SEEDS.exists() else {}
    for make in (_boosters, _small_files, _tensorflow, _torch):
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ImportError, AttributeError):
            collected.update(make(Path(folder)))
    with zipfile.ZipFile(SEEDS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for kind, files in sorted(collected.items()):
            for name, data in sorted(files.items()):
                archive.writestr(zipfile.ZipInfo(f"{kind}/{name}", (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def _contents(folder: Path) -> Files:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shutil.rmtree(folder)
    return files


def _boosters(folder: Path) -> dict[str, Files]:
    import lightgbm
    import numpy as np
    import xgboost

    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    y = (x[:, 0] + x[:, 1] > 0).astype(float)
    settings = {"verbose": -1, "min_data_in_leaf": 2, "num_leaves": 4, "num_threads": 1, "deterministic": True}
    lightgbm.train(settings, lightgbm.Dataset(x, y), 2).save_model(folder / "m.txt")
    booster = xgboost.train({"max_depth": 2, "nthread": 1}, xgboost.DMatrix(x, y), 2)
    booster.save_model(folder / "m.json")
    booster.save_model(folder / "m.ubj")
    names = {"lightgbm": "m.txt", "xgboost-json": "m.json", "xgboost-ubj": "m.ubj"}
    return {kind: {name: (folder / name).read_bytes()} for kind, name in names.items()}


def _small_files(folder: Path) -> dict[str, Files]:
    import numpy as np
    import onnx

    import tenonnx as tx
    from tenonnx_training.shards import write as write_shards

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 2] x) => (float[n, 2] y) { y = Relu (x) }'
    )
    arrays = folder / "arrays"
    arrays.mkdir()
    onnx.save(model, arrays / "model.onnx")
    np.savez(arrays / "feeds.npz", x=np.ones((3, 2), np.float32))
    scores = folder / "scores"
    scores.mkdir()
    onnx.save(model, scores / "model.onnx")
    np.save(scores / "data.npy", np.ones((6, 2), np.float32))
    os.utime(scores / "data.npy", ns=(MODIFIED, MODIFIED))
    tx.score(scores / "model.onnx", str(scores / "data.npy"), scores / "out")
    manifest = scores / "out" / "_manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes().replace(str(scores).encode(), HERE))
    parts = folder / "parts"
    product = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1, 2}> '
        "{ y = Mul (x, w) }"
    )
    write_shards(parts / "c.shards", 1, tx.load(product), {"w": np.float32([1, 2])}, {}, {})
    return {"npz": _contents(arrays), "manifest": _contents(scores), "shards": _contents(parts)}


def _tensorflow(folder: Path) -> dict[str, Files]:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="relu"), keras.layers.Dense(1)])
    model.save(folder / "m.keras")
    model.save(folder / "m.h5")
    module = tf.Module()
    module.w = tf.Variable([1.0, 2.0, 3.0])
    function = tf.function(lambda x: tf.nn.relu(x * module.w), input_signature=[tf.TensorSpec([None, 3])])
    saved = folder / "saved"
    tf.saved_model.save(module, str(saved), signatures=function.get_concrete_function())
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    lite = converter.convert()
    found = {kind: {f"m.{kind}": (folder / f"m.{kind}").read_bytes()} for kind in ("keras", "h5")}
    return {**found, "tflite": {"m.tflite": lite}, "savedmodel": _contents(saved)}


def _torch(folder: Path) -> dict[str, Files]:
    import torch

    class Layers(torch.nn.Module):
        """A module with weights, a buffer, a constant, a dynamic dim and several outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.register_buffer("scale", torch.ones(2))
            self.shift = torch.arange(2.0)

        def forward(self, x: torch.Tensor, n: torch.Tensor) -> dict[str, Any]:
            y = torch.relu(self.linear(x)) * self.scale + self.shift
            return {"y": y.reshape(x.shape[0] * 2), "k": (torch.cat([x, x]), n + 1)}

    torch.manual_seed(0)
    shapes = {"x": {0: torch.export.Dim("batch")}, "n": None}
    given = (torch.ones(4, 3), torch.ones(2, dtype=torch.int64))
    torch.export.save(torch.export.export(Layers().eval(), given, dynamic_shapes=shapes), folder / "m.pt2")
    return {"pt2": {"m.pt2": (folder / "m.pt2").read_bytes()}}
