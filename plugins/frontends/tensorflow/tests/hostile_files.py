"""Hostile TensorFlow and Keras files, made for each test.

Each case is a name and a function that writes the file into a folder and returns its path. A successful attack leaves
``MARKER`` in the parent folder, or copies the text of ``SECRET`` from there into the graph.
"""

from __future__ import annotations

import base64
import io
import json
import marshal
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

v1 = tf.compat.v1

MARKER, SECRET = "marker", "SECRET-OF-ANOTHER-FILE"

Case = tuple[str, Callable[[Path], Path]]


def outside(folder: Path) -> Path:
    return folder.parent / MARKER


def secret(folder: Path) -> Path:
    path = folder.parent / "secret.txt"
    path.write_text(f"{SECRET}\nbeta\n")
    return path


# ----- graphs of TensorFlow -------------------------------------------------------------------------------------------


def _text(value: str) -> Any:
    return tf.constant(value)


def _reader(reader: Any, folder: Path) -> Any:
    queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.string])
    return tf.raw_ops.ReaderReadV2(reader_handle=reader, queue_handle=queue)[1]


def _table(folder: Path) -> Any:
    table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="t")
    tf.raw_ops.InitializeTableFromTextFileV2(
        table_handle=table, filename=_text(str(secret(folder))), key_index=-2, value_index=-1
    )
    return tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=tf.string, Tvalues=tf.int64)[0]


def _summary(folder: Path) -> Any:
    writer = tf.raw_ops.SummaryWriter(shared_name="s")
    return tf.raw_ops.CreateSummaryFileWriter(
        writer=writer, logdir=_text(str(outside(folder))), max_queue=1, flush_millis=1, filename_suffix=_text("")
    )


#: Ops with side effects: each adds a node to the graph under construction.
ATTACKS: Mapping[str, Callable[[Path], Any]] = {
    "WriteFile": lambda f: tf.raw_ops.WriteFile(filename=_text(str(outside(f))), contents=_text("x")),
    "PrintV2": lambda f: tf.raw_ops.PrintV2(input=_text("x"), output_stream=f"file://{outside(f)}"),
    "ReadFile": lambda f: tf.raw_ops.ReadFile(filename=_text(str(secret(f)))),
    "MatchingFiles": lambda f: tf.raw_ops.MatchingFiles(pattern=_text(str(f.parent / "*"))),
    "Save": lambda f: tf.raw_ops.Save(filename=_text(str(outside(f))), tensor_names=["a"], data=[tf.constant(1.0)]),
    "SaveV2": lambda f: tf.raw_ops.SaveV2(
        prefix=_text(str(outside(f))), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
    ),
    "MergeV2Checkpoints": lambda f: tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[str(f / "a")], destination_prefix=_text(str(outside(f)))
    ),
    "RestoreV2": lambda f: tf.raw_ops.RestoreV2(
        prefix=_text(str(secret(f))), tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
    ),
    "Restore": lambda f: tf.raw_ops.Restore(file_pattern=_text(str(secret(f))), tensor_name=_text("a"), dt=tf.float32),
    "InitializeTableFromTextFileV2": _table,
    "ImmutableConst": lambda f: tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=[4], memory_region_name=str(secret(f))),
    "PyFunc": lambda f: tf.raw_ops.PyFunc(input=[], token="pyfunc_0", Tout=[tf.float32]),
    "EagerPyFunc": lambda f: tf.raw_ops.EagerPyFunc(input=[], token="pyfunc_0", Tout=[tf.float32]),
    "CreateSummaryFileWriter": _summary,
    "TextLineDataset": lambda f: tf.raw_ops.TextLineDataset(
        filenames=[str(secret(f))], compression_type=_text(""), buffer_size=tf.constant(0, tf.int64)
    ),
    "TextLineReaderV2": lambda f: _reader(tf.raw_ops.TextLineReaderV2(), f),
    "WholeFileReaderV2": lambda f: _reader(tf.raw_ops.WholeFileReaderV2(), f),
    "DebugIdentityV3": lambda f: tf.raw_ops.DebugIdentityV3(
        input=tf.constant(1.0), debug_urls=[f"file://{outside(f)}"]
    ),
    "DecodeProtoV2": lambda f: tf.raw_ops.DecodeProtoV2(
        bytes=_text(""), message_type="A", field_names=[], output_types=[], descriptor_source=str(secret(f))
    ),
    "EncodeProto": lambda f: tf.raw_ops.EncodeProto(
        sizes=np.zeros((1, 0), np.int32),
        values=[tf.constant([[1.0]])],
        field_names=["a"],
        message_type="A",
        descriptor_source=str(secret(f)),
    ),
    "Abort": lambda f: tf.raw_ops.Abort(error_msg="x"),
    "FileSystemSetConfiguration": lambda f: tf.raw_ops.FileSystemSetConfiguration(
        scheme=_text(""), key=_text("a"), value=_text("b")
    ),
}


def frozen_files() -> Iterator[Case]:
    """Frozen graphs with the op in a dead branch, or as a control input."""
    for number, (op, make) in enumerate(ATTACKS.items()):

        def write(folder: Path, make: Callable[[Path], Any] = make, before: bool = number % 2 == 0) -> Path:
            graph = tf.Graph()
            with graph.as_default():
                x = v1.placeholder(tf.float32, [None, 3], name="x")
                make(folder)
                with tf.control_dependencies(graph.get_operations()[-1:] if before else []):
                    tf.add(x, 1.0, name="y")
            path = folder / "frozen.pb"
            path.write_bytes(graph.as_graph_def().SerializeToString())
            return path

        yield op, write


def saved_models() -> Iterator[Case]:
    """SavedModels with the op before a signature, in an unused function, or as the initializer of a resource."""
    for number, (op, make) in enumerate(ATTACKS.items()):

        def write(folder: Path, make: Callable[[Path], Any] = make, called: bool = number % 2 == 0) -> Path:
            _saved(folder / "model")
            _add(folder / "model", lambda: make(folder), called)
            return folder / "model"

        yield op, write
    for op in ("WriteFile", "PrintV2"):
        yield f"{op} in an initializer", lambda folder, make=ATTACKS[op]: _in_initializer(folder, make)


def _in_initializer(folder: Path, make: Callable[[Path], Any]) -> Path:
    _saved(folder / "model", lambda: make(folder))

    def forget(message: Any) -> None:  # then only the object loader runs it
        message.meta_graphs[0].signature_def.pop("__saved_model_init_op", None)

    _edit(folder / "model", forget)
    return folder / "model"


def _add(path: Path, make: Callable[[], Any], called: bool) -> None:
    graph = tf.Graph()
    with graph.as_default():
        make()
    nodes = graph.as_graph_def().node
    name = nodes[-1].name

    def add(message: Any) -> None:
        held = message.meta_graphs[0].graph_def
        for node in nodes:
            node.name = f"evil_{node.name}"
            node.input[:] = [re.sub(r"^(\^?)", r"\1evil_", text) for text in node.input]
        if called:
            held.node.extend(nodes)
            call = next(node for node in held.node if node.op == "StatefulPartitionedCall")
            call.input.append(f"^evil_{name}")
        else:
            function = held.library.function.add()
            function.signature.name = "never_called"
            function.node_def.extend(nodes)

    _edit(path, add)


def _edit(path: Path, change: Callable[[Any], None]) -> None:
    message = SavedModel()
    message.ParseFromString((path / "saved_model.pb").read_bytes())
    change(message)
    (path / "saved_model.pb").write_bytes(message.SerializeToString())


def _saved(path: Path, initial: Callable[[], Any] = lambda: None) -> None:
    class Resource(tf.saved_model.experimental.TrackableResource):  # type: ignore[misc]
        def _create_resource(self) -> Any:
            return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])

        def _initialize(self) -> None:
            initial()

        def _destroy_resource(self) -> None:
            pass

    class Module(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.resource = Resource()

        @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)  # type: ignore[untyped-decorator]
        def serve(self, x: Any) -> Any:
            return x + 1.0

    module = Module()
    tf.saved_model.save(module, str(path), signatures=module.serve)


# ----- files of Keras -------------------------------------------------------------------------------------------------

_INPUT = {
    "module": "keras.layers",
    "class_name": "InputLayer",
    "registered_name": None,
    "name": "in",
    "inbound_nodes": [],
    "config": {"batch_shape": [None, 3], "dtype": "float32", "sparse": False, "name": "in"},
}
_TENSOR = {
    "class_name": "__keras_tensor__",
    "config": {"shape": [None, 3], "dtype": "float32", "keras_history": ["in", 0, 0]},
}


def _code(marker: Path) -> str:
    scope: dict[str, Any] = {}
    exec(f"f = lambda x: (__import__('pathlib').Path({str(marker)!r}).touch(), x)[1]", scope)
    return base64.b64encode(marshal.dumps(scope["f"].__code__)).decode()


def _layer(
    module: str | None, name: str, config: Any, registered: str | None = None, call: Any = None
) -> dict[str, Any]:
    config = {"name": "l", **config} if isinstance(config, dict) else config
    node = {"args": [_TENSOR], "kwargs": {}} if call is None else call
    return {
        "module": module,
        "class_name": name,
        "registered_name": registered,
        "name": "l",
        "config": config,
        "inbound_nodes": [node],
    }


def _function(module: str, name: str) -> dict[str, Any]:
    return {"class_name": "function", "module": module, "config": name, "registered_name": name}


def _lambda(function: Any, call: Any = None, **arguments: Any) -> dict[str, Any]:
    config = {"function": function, "arguments": arguments, "output_shape": [3], "trainable": True}
    return _layer("keras.layers", "Lambda", config, call=call)


def hostile_layers(folder: Path) -> Mapping[str, dict[str, Any]]:
    """Layers that execute code, write or read other files, download, or change the process."""
    marker, other = str(outside(folder)), str(secret(folder))
    given = {"args": [], "kwargs": {"inputs": marker}}
    code = {"class_name": "__lambda__", "config": {"code": _code(outside(folder)), "defaults": None, "closure": None}}
    return {
        "bytecode": _lambda(code),
        "bytecode as an activation": _layer("keras.layers", "Activation", {"activation": code}),
        "function of os in a Lambda": _lambda(_function("os", "makedirs"), given),
        "function of os as a layer": {
            **_layer("os", "function", "makedirs"),
            "inbound_nodes": [{"args": [marker], "kwargs": {}}],
        },
        "class of subprocess": _layer("subprocess", "Popen", {"args": ["touch", marker]}),
        "builtin exec": _lambda(_function("builtins", "exec"), given),
        "builtin eval as an activation": _layer(
            "keras.layers", "Activation", {"activation": _function("builtins", "eval")}
        ),
        "get_file": _lambda(
            _function("keras.utils", "get_file"), given, origin=f"file://{other}", cache_dir=str(folder)
        ),
        "enable_unsafe_deserialization": _lambda(_function("keras.config", "enable_unsafe_deserialization")),
        "set_floatx": _lambda(_function("keras.config", "set_floatx"), {"args": [], "kwargs": {"inputs": "float16"}}),
        "set_backend": _layer("keras.layers", "Activation", {"activation": _function("keras.config", "set_backend")}),
        "load_model": _lambda(_function("keras.saving", "load_model"), given),
        "legacy deserialization": _lambda(_function("keras.legacy.saving", "deserialize_keras_object")),
        "application that fetches": _layer("keras.applications.vgg16", "VGG16", {"weights": "imagenet"}),
        "application as an activation": _layer(
            "keras.layers", "Activation", {"activation": _function("keras.applications.vgg16", "VGG16")}
        ),
        "dataset": _lambda(_function("keras.datasets.mnist", "load_data"), given),
        "vocabulary of another file": _layer("keras.layers", "StringLookup", {"vocabulary": other}),
        "nested vocabulary": _layer(
            "keras.layers",
            "TimeDistributed",
            {"layer": _layer("keras.layers", "TextVectorization", {"vocabulary": other})},
        ),
        "TFSMLayer": _layer("keras.layers", "TFSMLayer", {"filepath": other, "call_endpoint": "serve"}),
        "TorchModuleWrapper": _layer("keras.layers", "TorchModuleWrapper", {"module": "gASV"}),
        "registered name of another": _layer("keras.layers", "Dense", {"units": 3}, registered="os>system"),
        "module that is no module of Keras": _layer("keras_evil.layers", "Dense", {"units": 3}),
        "map_structure": _lambda(_function("keras.tree", "map_structure"), given),
        "test module": _layer("keras.src.layers.core.dense_test", "Dense", {"units": 3}),
        "type by name": {**_layer("os", "__typespec__", []), "spec_name": "system"},
        "loop over a function": _layer("keras.src.ops.core", "Map", {"function": code}),
    }


def layer_names() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return list(hostile_layers(Path(folder) / "x"))


def _config(layer: dict[str, Any]) -> dict[str, Any]:
    inner = {
        "name": "m",
        "trainable": True,
        "layers": [_INPUT, layer],
        "input_layers": [["in", 0, 0]],
        "output_layers": [["l", 0, 0]],
    }
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "registered_name": "Functional",
        "config": inner,
    }


def archive(path: Path, config: Any, weights: bytes | None = None, more: Mapping[str, bytes] | None = None) -> Path:
    if weights is None:
        empty = io.BytesIO()
        h5py.File(empty, "w").close()
        weights = empty.getvalue()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("metadata.json", json.dumps({"keras_version": "3.13.2"}))
        made.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        made.writestr("model.weights.h5", weights)
        for name, contents in (more or {}).items():
            made.writestr(name, contents)
    return path


def damaged_archive(name: str) -> bytes:
    """An archive with one member, whose LZMA data are damaged."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as file:
        file.writestr(name, bytes(1000))
    data = bytearray(made.getvalue())
    data[50:60] = b"\xff" * 10
    return bytes(data)


def keras_files() -> Iterator[Case]:
    for name in layer_names():
        yield name, lambda folder, name=name: archive(folder / "m.keras", _config(hostile_layers(folder)[name]))
    dense = _layer("keras.layers", "Dense", {"units": 3})
    for name, write in _WEIGHTS.items():
        yield (
            f"weights: {name}",
            lambda folder, write=write: archive(folder / "m.keras", _config(dense), write(folder).read_bytes()),
        )
    yield "deep config", lambda folder: archive(folder / "m.keras", "[" * 100_000)


def h5_files() -> Iterator[Case]:
    def write(folder: Path, name: str) -> Path:
        layer = hostile_layers(folder)[name]
        layer["inbound_nodes"] = [[["in", 0, 0, {}]]]
        if name == "bytecode":
            layer["config"] |= {"function": [_code(outside(folder)), None, None], "function_type": "lambda"}
        path = folder / "m.h5"
        with h5py.File(path, "w") as file:
            file.attrs["model_config"] = json.dumps(_config(layer))
            file.create_group("model_weights").attrs["layer_names"] = [b"in", b"l"]
        return path

    for name in layer_names():
        yield name, lambda folder, name=name: write(folder, name)
    for name, weights in _WEIGHTS.items():
        yield f"weights: {name}", weights


def _weights(make: Callable[[Any, Path], None]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with h5py.File(folder / "m.h5", "w") as file:
            file.attrs["model_config"] = json.dumps(_config(_layer("keras.layers", "Dense", {"units": 3})))
            make(file.create_group("model_weights"), folder)
        return folder / "m.h5"

    return write


def _virtual(group: Any, folder: Path) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(str(folder.parent / "other.h5"), "x", (4,))
    group.create_virtual_dataset("x", layout)


def _damaged(folder: Path) -> Path:
    """An attribute whose type is neither a sequence nor a string: reading it crashes libhdf5 1.14."""
    path = _weights(lambda group, f: None)(folder)
    data = bytearray(path.read_bytes())
    data[data.index(b"\x19\x01", data.index(b"model_config")) + 1] = 9
    path.write_bytes(data)
    return path


#: Weights in another file, larger than memory when unpacked, or damaged.
_WEIGHTS: Mapping[str, Callable[[Path], Path]] = {
    "external storage": _weights(
        lambda g, f: g.create_dataset("x", (8,), "u1", external=[(os.fspath(secret(f)), 0, 8)])
    ),
    "external link": _weights(lambda g, f: g.__setitem__("x", h5py.ExternalLink(str(f.parent / "other.h5"), "/x"))),
    "soft link": _weights(lambda g, f: g.__setitem__("x", h5py.SoftLink("/somewhere"))),
    "virtual dataset": _weights(_virtual),
    "bomb": _weights(lambda g, f: g.create_dataset("x", (1 << 33,), "f4", chunks=(1 << 16,), compression="gzip")),
    "two names": _weights(lambda g, f: g.__setitem__("x", g)),
    "text": _weights(lambda g, f: g.create_dataset("x", data=["a", "b"])),
    "damaged attribute": _damaged,
}
