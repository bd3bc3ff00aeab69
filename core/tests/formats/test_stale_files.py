"""Cleaning up stale data files and temporary files."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tenonnx as tx
from tenonnx.formats import files, temp_files
from tenonnx.formats.files import AtomicWriter
from tenonnx.formats.onnx import reader, streaming
from tenonnx.formats.onnx.reader import read
from tenonnx.registry.registry import Registry


def export(path, value=1.0, **keywords):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.variable("w", np.full(64, value, np.float32))
    graph.outputs.append(graph.input("x", "float32", (2,)))
    tx.export(graph, path, external_data_threshold=0, **keywords)


def load(path, **keywords):
    return read(path, registry=Registry(), **keywords)


def held(path):
    return load(path).variables[0].data.array()[0]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_exporting_over_itself_leaves_one_data_file(tmp_path):
    path = tmp_path / "m.onnx"
    export(path, 1.0)
    for k in range(5):
        graph = load(path)
        tx.export(graph, path)
        assert len(names(tmp_path)) == 2, k
        assert graph.variables[0].data.array()[0] == held(path) == 1  # the old one stays readable while it is open
    export(path, 2.0)
    assert held(path) == 2


def test_a_data_file_that_another_model_names_stays(tmp_path):
    export(tmp_path / "m.onnx", 1.0)
    (tmp_path / "copy.onnx").write_bytes((tmp_path / "m.onnx").read_bytes())
    export(tmp_path / "m.onnx", 2.0)
    assert (held(tmp_path / "copy.onnx"), held(tmp_path / "m.onnx")) == (1, 2)


@pytest.mark.parametrize("name", ["weights.bin", "m.onnx.data.old", "other.onnx.data", "m.onnx-x.data"])
def test_files_that_are_not_the_models_own_stay(name, tmp_path):
    path = tmp_path / "m.onnx"
    export(path)
    (tmp_path / name).write_bytes(b"mine")
    graph = load(path)
    graph.name = name  # so that the model's file contains its name
    tx.export(graph, path)
    export(path)
    assert (tmp_path / name).read_bytes() == b"mine"


def test_a_data_file_of_that_name_that_no_model_names_stays(tmp_path):
    (tmp_path / "m.onnx.data").write_bytes(b"mine")
    for _ in range(3):
        export(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").read_bytes() == b"mine"
    assert len(names(tmp_path)) == 3


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_stale_files
from tenonnx.formats import files
where = sys.argv[3]
if where == "verified":
    test_stale_files.export(sys.argv[2], 7.0, verify=lambda written: os.kill(os.getpid(), signal.SIGKILL))
if where == "writing":
    from tenonnx.formats.onnx import streaming as module
    name = "_write_message"
elif where == "replaced":  # before the data of the model that was replaced is removed
    module, name = Path, "replace"
else:
    module, name = files, "_rename_to_free"
original = getattr(module, name)
def killed(*arguments):
    original(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(module, name, killed)
test_stale_files.export(sys.argv[2], 7.0)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
@pytest.mark.parametrize("where", ["writing", "verified", "between", "replaced"])
def test_files_of_a_killed_export_are_removed_by_the_next(where, tmp_path):
    path = tmp_path / "m.onnx"
    export(path, 1.0)
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path), where]
    assert subprocess.run(command, timeout=120).returncode == -signal.SIGKILL
    assert len(names(tmp_path)) > 2
    assert held(path) == (7 if where == "replaced" else 1)
    export(tmp_path / "other.onnx", 3.0)  # belongs to another model
    assert len(names(tmp_path)) > 4
    export(path, 2.0)
    data = [name for name in names(tmp_path) if name.startswith("m.onnx")]
    assert len(data) == 2
    assert not list(tmp_path.glob(".tenonnx-*"))
    assert held(path) == 2


def test_an_interrupted_export_leaves_no_data_behind(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    export(path, 1.0)
    replace = Path.replace

    def interrupted(*arguments):
        replace(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(path, 2.0)
    assert len(names(tmp_path)) == 2
    assert held(path) == 2


def test_an_export_during_another_leaves_no_data_behind(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    write = streaming._write_message

    def slowly(*arguments):
        monkeypatch.undo()
        export(path, 2.0)
        write(*arguments)

    monkeypatch.setattr(streaming, "_write_message", slowly)
    tx.export(tx.Graph(opsets={"ai.onnx": 21}), path)
    assert names(tmp_path) == ["m.onnx"]
    assert load(path).variables == []


def test_files_of_a_running_export_are_not_removed(tmp_path):
    with AtomicWriter(tmp_path / "m.onnx") as writer:
        export(tmp_path / "m.onnx", 5.0)
        writer.open().write(b"late")
    assert (tmp_path / "m.onnx").read_bytes() == b"late"


def test_a_temporary_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock = files.lock

    def late(descriptor):
        monkeypatch.undo()
        temp_files.remove_stale(tmp_path / "m.onnx")  # as the next export does
        assert names(tmp_path) == []
        return lock(descriptor)

    monkeypatch.setattr(files, "lock", late)
    export(tmp_path / "m.onnx", 4.0)
    assert held(tmp_path / "m.onnx") == 4
    assert len(names(tmp_path)) == 2


def test_without_locks_nothing_is_removed_that_is_open(tmp_path, monkeypatch):
    def refused(*arguments):
        raise OSError("no locks here")

    if temp_files.fcntl is None:
        pytest.skip("there are none to begin with")
    monkeypatch.setattr(temp_files.fcntl, "flock", refused)
    with AtomicWriter(tmp_path / "m.onnx") as writer:
        export(tmp_path / "m.onnx", 5.0)
        writer.open().write(b"late")


@pytest.mark.parametrize("times", [1, 3, 100])
def test_a_model_is_read_with_its_own_data(times, tmp_path, monkeypatch):
    """Exports during the reading give the name of its data file to other data."""
    path, left = tmp_path / "m.onnx", [times]
    export(path, 1.0)
    parse = reader.parse_model

    def slowly(*arguments):
        model = parse(*arguments)
        if left[0]:
            left[0] -= 1
            export(path, 5.0)
            export(path, 6.0 + times)
        return model

    monkeypatch.setattr(reader, "parse_model", slowly)
    if times == 100:
        with pytest.raises(tx.InvalidModel, match="changed while it was read"):
            load(path)
    else:
        assert held(path) == 6 + times
        assert left == [0]  # it was reread until nothing changed


# ----- read-only files ------------------------------------------------------------------------------------------------


def test_a_read_only_file_is_only_replaced_on_request(tmp_path):
    path, native = tmp_path / "m.onnx", tmp_path / "m.safetensors"
    export(path, 1.0)
    load(path).save(native)
    for each in (path, native):
        each.chmod(0o444)
    with pytest.raises(tx.InvalidCall, match=r"(?s)read-only.*overwrite=True"):
        export(path, 2.0)
    with pytest.raises(tx.InvalidCall, match="read-only"):
        load(path).save(native)
    assert held(path) == 1
    export(path, 2.0, overwrite=True)
    load(path).save(native, overwrite=True)
    assert held(path) == tx.load(native).variables[0].data.array()[0] == 2


# ----- files that shrink ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_unmapped_files_may_shrink(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    export(tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    graph.save(tmp_path / "m.safetensors")
    whole = tx.load(path, mapped=False).variables[0].data
    assert whole.array().tolist() == [1.0] * 64
    cut = tx.load(path, mapped=False).variables[0].data
    os.truncate(tmp_path / "m.onnx.data" if suffix == ".onnx" else path, 16)
    assert whole.array()[-1] == 1
    with pytest.raises(tx.InvalidModel, match="was truncated"):
        cut.array()
