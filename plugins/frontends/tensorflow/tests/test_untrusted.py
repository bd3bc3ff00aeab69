"""Hostile TensorFlow and Keras files: nothing that they name is run, written or read."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import tenonnx as tx
from tenonnx.extend.formats import to_model
from tenonnx.tools import load_and_verifier
from tenonnx_frontends import UnverifiedWarning
from tenonnx_tensorflow import keras_files, original_process
from tenonnx_tensorflow.effects import READERS, SAVERS, RunnablePart, effectless_ops, effects_of, needed_part
from tenonnx_tensorflow.graphs import Reference
from tenonnx_tensorflow.keras_backends import backend_to_import
from tenonnx_tensorflow.keras_config import refused_objects

sys.path.insert(0, str(Path(__file__).parent))
try:
    import hostile_files as hostile
finally:
    sys.path.pop(0)

FROZEN, SAVED = list(hostile.frozen_files()), list(hostile.saved_models())
KERAS, H5 = list(hostile.keras_files()), list(hostile.h5_files())


def _opened(path: Path) -> tx.Graph | None:
    """The graph of a hostile file, None if rejected; only our own errors and warnings are allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnverifiedWarning)
        try:
            return tx.load(path)
        except tx.TenonnxError as error:
            refusal = error
    assert not isinstance(refusal, tx.PluginError), refusal
    return None


def _cases(*groups: Any, named: str = "") -> Any:
    chosen = [(f"{kind}, {name}", write) for kind, group in groups for name, write in group if named in name]
    return pytest.mark.parametrize("write", [write for _, write in chosen], ids=[name for name, _ in chosen])


@_cases(("frozen", FROZEN), ("saved", SAVED), ("keras", KERAS), ("h5", H5))
def test_nothing_happens(write: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    path = write(folder)
    hostile.outside(folder).unlink(missing_ok=True)  # left by tracing the case itself
    before = {each.name for each in tmp_path.iterdir()}
    graph = _opened(path)
    assert {each.name for each in tmp_path.iterdir()} == before
    assert graph is None or hostile.SECRET.encode() not in to_model(graph).SerializeToString()
    assert keras.config.floatx() == "float32"


def test_each_format_has_twenty() -> None:
    assert all(len(group) >= 20 for group in (FROZEN, SAVED, KERAS, H5))


@pytest.mark.parametrize("op", hostile.ATTACKS)
def test_ops_with_effects_are_not_listed(op: str) -> None:
    assert op not in effectless_ops()


def test_listed_ops_are_those_of_tensorflow() -> None:
    from tensorflow.core.framework.op_def_pb2 import OpList
    from tensorflow.python.client import pywrap_tf_session

    known = OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    assert effectless_ops() <= {each.name for each in known.op}
    assert not effectless_ops() & (READERS.keys() | SAVERS | {"PrintV2"})


def _message(*nodes: tuple[str, str, list[str]]) -> Any:
    graph = tf.compat.v1.GraphDef()
    for name, op, inputs in nodes:
        graph.node.add(name=name, op=op, input=inputs)
    return graph


def test_an_op_of_tomorrow_is_refused() -> None:
    graph = _message(("a", "Const", []), ("b", "AddV9", ["a"]))
    assert effects_of(graph) == ['AddV9 (node "b")']
    assert effects_of(needed_part(graph, ["a"])) == []


@pytest.mark.parametrize("text", ["a:b", "a:", "a:-1", "a:out:1x", "a:" + "1" * 5_000])
def test_a_reference_that_names_no_output(text: str) -> None:
    with pytest.raises(tx.InvalidModel, match="does not end in the index of an output"):
        Reference.of(text, in_function=True)


def test_a_function_named_by_an_attribute_is_part_of_the_graph() -> None:
    graph = _message(("a", "While", []))
    graph.node[0].attr["anything"].s = b"written"
    function = graph.library.function.add()
    function.signature.name = "written"
    function.node_def.add(name="w", op="WriteFile")
    part = needed_part(graph, ["a"])
    assert [each.signature.name for each in part.library.function] == ["written"]
    assert RunnablePart(part, frozenset()).problems() == ['WriteFile (function "written")']


@pytest.mark.parametrize(
    ("nodes", "fine"),
    [
        ([("f", "Placeholder", []), ("r", "RestoreV2", ["f", "f", "f"])], True),
        ([("f", "Placeholder", []), ("i", "Identity", ["f"]), ("r", "RestoreV2", ["i:0", "f", "f"])], True),
        ([("f", "Const", []), ("g", "Const", []), ("r", "RestoreV2", ["g", "f", "f"])], False),
        ([("f", "Placeholder", []), ("j", "StringJoin", ["f", "f"]), ("r", "RestoreV2", ["j", "f", "f"])], False),
        ([("f", "Placeholder", []), ("r", "RestoreV2", ["^f"])], False),
        ([("f", "Placeholder", []), ("s", "SaveV2", ["f"]), ("r", "Identity", ["s"])], False),
    ],
)
def test_only_the_named_file_is_read(nodes: Any, fine: bool) -> None:
    assert (RunnablePart(_message(*nodes), frozenset("f")).problems() == []) == fine


def _with_variable(*more: tuple[str, str, list[str]]) -> Any:
    return _message(
        ("f", "Placeholder", []),
        ("v", "VarHandleOp", []),
        ("a", "AssignVariableOp", ["v", "f"]),
        ("p", "ReadVariableOp", ["v", "^a"]),
        ("t", "InitializeTableFromTextFileV2", ["f", "p"]),
        *more,
    )


def test_the_path_of_an_asset_in_a_variable() -> None:
    assert RunnablePart(_with_variable(), frozenset("f")).problems() == []
    again = _with_variable(("c", "Const", []), ("b", "AssignVariableOp", ["v", "c"]))
    shared = _with_variable(("w", "VarHandleOp", []))
    shared.node[-1].attr["shared_name"].s = b"v"
    passed = _with_variable(("g", "PartitionedCall", ["v"]))
    for graph in (again, shared, passed):
        assert RunnablePart(graph, frozenset("f")).problems()


def test_the_reason_is_reported(tmp_path: Path) -> None:
    path = dict(FROZEN)["PrintV2"](tmp_path)
    with pytest.warns(UnverifiedWarning, match=r"not verified against TensorFlow: the model contains PrintV2 \(node"):
        graph = tx.load(path)
    assert [node.op_type for node in graph.nodes] == ["Add"]
    graph, verifier = load_and_verifier(path)
    assert verifier is not None
    assert verifier(graph).unverified["y"].startswith("not verified against TensorFlow: the model contains PrintV2")


def _saved_table(folder: Path) -> Path:
    folder.mkdir()
    (folder / "words.txt").write_text("red\ngreen\n")

    class Module(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            lines = tf.lookup.TextFileInitializer(
                str(folder / "words.txt"),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            )
            self.table = tf.lookup.StaticHashTable(lines, -1)
            self.shift = tf.Variable([10], dtype=tf.int64)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])  # type: ignore[untyped-decorator]
        def serve(self, x: Any) -> Any:
            return self.table.lookup(x) + self.shift

    module = Module()
    tf.saved_model.save(module, str(folder / "model"), signatures=module.serve)
    return folder / "model"


def test_an_honest_table_is_verified(tmp_path: Path) -> None:
    graph, verifier = load_and_verifier(_saved_table(tmp_path / "a"))
    assert verifier is not None
    assert verifier(graph).verified
    assert graph.run({"x": np.asarray(["green", "blue"], object)})["output_0"].tolist() == [11, 9]


@pytest.mark.parametrize("place", ["assets/words.txt", "variables/variables.index", "saved_model.pb"])
@pytest.mark.parametrize("kind", ["link", "pipe", "hard link"])
def test_links_in_the_folder_are_refused(place: str, kind: str, tmp_path: Path) -> None:
    path = _saved_table(tmp_path / "a")
    (path / place).rename(tmp_path / "moved")
    if kind == "link":
        (path / place).symlink_to(tmp_path / "moved")
    elif kind == "hard link":
        (path / place).hardlink_to(tmp_path / "moved")
    else:
        os.mkfifo(path / place)
    with pytest.raises(tx.UnsafePath):
        tx.load(path)


def test_refused_files_list_their_layers(tmp_path: Path) -> None:
    with pytest.raises(tx.InvalidCall) as caught:
        tx.load(dict(KERAS)["bytecode"](tmp_path))
    text = str(caught.value)
    assert 'keras.layers.Lambda (layer "l")' in text
    assert "in (InputLayer), l (Lambda)" in text
    assert "--load FILE.py --trust" in text


def test_trust_runs_what_a_file_brings(tmp_path: Path) -> None:
    inputs = keras.Input((3,))
    keras.Model(inputs, keras.layers.Lambda(lambda x: x + 1.0)(inputs)).save(tmp_path / "m.keras")
    with pytest.raises(tx.InvalidCall):
        tx.load(tmp_path / "m.keras")
    assert tx.load(tmp_path / "m.keras", trust=True).nodes


def test_registered_classes_are_the_users_own(tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable("own")
    class Shift(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x + 1.0

    inputs = keras.Input((3,))
    keras.Model(inputs, Shift()(inputs)).save(tmp_path / "m.keras")
    assert tx.load(tmp_path / "m.keras").nodes
    keras.saving.get_custom_objects().pop("own>Shift")
    with pytest.raises(tx.InvalidCall, match="Shift"):
        tx.load(tmp_path / "m.keras")


def test_a_registered_class_in_place_of_one_of_keras_is_verified(tmp_path: Path) -> None:
    """The worker process would run the class of Keras."""

    class ReLU(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return 2.0 * x

    layer = hostile._layer("keras.layers", "ReLU", {"trainable": True}, registered="ReLU")
    path = hostile.archive(tmp_path / "m.keras", hostile._config(layer))
    with keras.saving.custom_object_scope({"ReLU": ReLU}):
        assert [node.op_type for node in tx.load(path).nodes] == ["Mul"]
    assert [node.op_type for node in tx.load(path).nodes] == ["Relu"]


def test_the_backend_that_keras_will_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend_to_import() == "tensorflow"
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert backend_to_import() == "tensorflow"
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert backend_to_import() == "jax"
    for text in ("[]", "{", "{}"):
        (tmp_path / "keras.json").write_text(text)
        assert backend_to_import() == "tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert backend_to_import() == "torch"


def test_an_archive_with_a_damaged_member(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(hostile.damaged_archive("config.json"))
    with pytest.raises(tx.InvalidModel, match="LZMAError"):
        tx.load(tmp_path / "m.keras")


def test_every_layer_of_keras_may_be_named() -> None:
    """All except those that execute code or open files."""
    refused = {"Lambda", "TFSMLayer", "TorchModuleWrapper", "FlaxLayer", "JaxLayer", "Layer", "Wrapper", "InputSpec"}
    names = [n for n in dir(keras.layers) if isinstance(getattr(keras.layers, n), type) and n not in refused]
    configs = [{"module": "keras.layers", "class_name": n, "config": {}, "registered_name": None} for n in names]
    assert refused_objects(configs) == []
    assert len(refused_objects([{"class_name": n, "config": {}} for n in refused])) == len(refused) - 1


def test_an_archive_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = hostile.archive(tmp_path / "m.keras", {}, more={"assets/x": bytes(1 << 21)})
    with tx.limits.override(memory=1 << 20), pytest.raises(tx.LimitExceeded):
        tx.load(path)


@_cases(("keras", KERAS), ("h5", H5), named="damaged")
def test_a_damaged_file_ends_a_worker_process_only(write: Callable[[Path], Path], tmp_path: Path) -> None:
    with pytest.raises(tx.InvalidModel, match="HDF5"):
        tx.load(write(tmp_path))


@pytest.mark.parametrize("name", ["assets/x/y", f"assets/{'n' * 300}"])
def test_names_that_no_file_has(name: str, tmp_path: Path) -> None:
    config = hostile._config(hostile._layer("keras.layers", "ReLU", {}))
    assert tx.load(hostile.archive(tmp_path / "m.keras", config, more={"assets/x": b"", "../y": b""})).nodes
    with pytest.raises(tx.InvalidModel, match="cannot copy"):
        tx.load(hostile.archive(tmp_path / "m.keras", config, more={"assets/x": b"", name: b""}))


def test_an_archive_without_metadata(tmp_path: Path) -> None:
    path = _keras_file(tmp_path / "a")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "m.keras", "w") as made:
        for name in ("config.json", "model.weights.h5"):
            made.writestr(name, archive.read(name))
    assert tx.load(tmp_path / "m.keras").nodes


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_layers_that_the_file_has_no_weights_for(suffix: str, tmp_path: Path) -> None:
    config = hostile._config(hostile._layer("keras.layers", "Dense", {"units": 1 << 29}))
    path = tmp_path / f"m{suffix}"
    if suffix == ".keras":
        hostile.archive(path, config)
    else:
        config["config"]["layers"][1]["inbound_nodes"] = [[["in", 0, 0, {}]]]
        with h5py.File(path, "w") as file:
            file.attrs["model_config"] = json.dumps(config)
            file.create_group("model_weights").attrs["layer_names"] = [b"in", b"l"]
    with pytest.raises(tx.InvalidModel, match=r"more weights than the file holds\n.*\(3, 536870912\)"):
        tx.load(path)


@pytest.mark.parametrize(
    ("name", "dtype"), [("m.keras", "bfloat16"), ("folder.keras", "bfloat16"), ("m.h5", "float16")]
)
def test_keras_files_are_rewritten(name: str, dtype: str, tmp_path: Path) -> None:
    """Types of arrays, state of an optimizer, vocabularies, and models in folders."""
    numbers, words = keras.Input((3,), name="x"), keras.Input((), dtype="string", name="w")
    held = keras.layers.StringLookup(vocabulary=["red", "green"], name="lookup")(words)
    model = keras.Model([numbers, words], [keras.layers.Dense(2, dtype=dtype)(keras.layers.Dense(4)(numbers)), held])
    model.compile("adam", [None, None])
    if name == "folder.keras":
        model.save(tmp_path / "folder", zipped=False)
        (tmp_path / "folder").rename(tmp_path / name)
    else:
        model.save(tmp_path / name)
    result, is_apart = keras_files.loaded(tmp_path / name)
    assert is_apart
    for ours, kept in zip(result.weights, model.weights, strict=True):
        assert ours.dtype == kept.dtype
        assert np.array_equal(keras.ops.convert_to_numpy(ours), keras.ops.convert_to_numpy(kept))
    assert result.get_layer("lookup").get_vocabulary() == ["[UNK]", "red", "green"]


def test_an_old_keras_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras, "__version__", "3.12.0")
    with pytest.raises(tx.InvalidCall, match="not safe") as caught:
        tx.load(hostile.archive(tmp_path / "m.keras", {}))
    assert "3.13.2" in str(caught.value)


def test_invalid_configs(tmp_path: Path) -> None:
    for text in ("[]", "null", '"x"', "{", json.dumps({"class_name": 5, "config": {}}), json.dumps({"class_name": []})):
        with pytest.raises(tx.TenonnxError):
            tx.load(hostile.archive(tmp_path / "m.keras", text))
    (tmp_path / "m.h5").write_bytes(b"no HDF5")
    with pytest.raises(tx.InvalidModel):
        tx.load(tmp_path / "m.h5")
    with h5py.File(tmp_path / "n.h5", "w"), pytest.raises(tx.TenonnxError):
        tx.load(tmp_path / "n.h5")


def _keras_file(folder: Path) -> Path:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(2, activation="relu")])
    folder.mkdir()
    model.save(folder / "m.keras")
    return folder / "m.keras"


def _frozen_file(folder: Path) -> Path:
    graph = tf.Graph()
    with graph.as_default():
        tf.identity(tf.compat.v1.placeholder(tf.float32, [None, 3], "x") * 2.0, "y")
    folder.mkdir()
    (folder / "m.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return folder / "m.pb"


HONEST = pytest.mark.parametrize("write", [_saved_table, _keras_file, _frozen_file])


@HONEST
def test_a_file_is_verified_in_a_worker_process(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a")

    def refuse(*given: Any, **named: Any) -> None:
        raise AssertionError("the file was run in this process")

    monkeypatch.setattr(tf.compat.v1, "Session", refuse)
    graph, verifier = load_and_verifier(path)
    assert verifier is not None
    assert verifier(graph).verified


def _crashing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, signal\ndef outputs(*given): os.kill(os.getpid(), signal.SIGSEGV)\n"
    path.write_text(f"{Path(original_process.__file__).read_text()}\n{code}")
    monkeypatch.setattr("tenonnx_tensorflow.original._FUNCTIONS", path)


CRASHED = r"not verified against TensorFlow: TensorFlow crashed its process \(SIGSEGV\)"


@HONEST
def test_a_file_that_ends_the_process_is_not_verified(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a")
    _crashing(tmp_path / "crashing.py", monkeypatch)
    with pytest.warns(UnverifiedWarning, match=CRASHED):
        assert tx.load(path).nodes


def test_an_unverified_conversion_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _frozen_file(tmp_path / "a")
    _crashing(tmp_path / "crashing.py", monkeypatch)
    result = tx.convert(path, tmp_path / "m.onnx").verification
    assert not result.outputs
    assert all(re.match(CRASHED, reason) for reason in result.unverified.values())
    with pytest.raises(tx.VerificationFailed, match="nothing could be compared"):
        tx.convert(path, tmp_path / "n.onnx", verify=True)
    assert [each.name for each in tmp_path.glob("*.onnx")] == ["m.onnx"]


def test_examples_and_options_reach_the_worker_process(tmp_path: Path) -> None:
    path, examples = _keras_file(tmp_path / "a"), [np.ones((4, 3), np.float32)]
    chosen: dict[str, Any] = {"dims": {"x": {0: "rows"}}, "input_names": ["given"]}
    for given, options in (
        (examples, {}),
        ([tf.TensorSpec([None, 3], tf.float32, "x")], {}),
        (examples, {"shapes": {"x": ("n", 3)}, "training": True}),
        ([], chosen),
    ):
        graph, verifier = load_and_verifier(path, *given, **options)
        assert verifier is not None
        result = verifier(graph)
        assert result.verified, result.summary()
        assert not result.notes
