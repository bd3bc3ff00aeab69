"""Sharded checkpoints of several processes, read as one."""

import json
import shutil

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_cli import main
from tenonnx_training import shards

RANDOM = np.random.default_rng(0)
DATA = RANDOM.standard_normal((48, 4)).astype(np.float32), RANDOM.integers(0, 3, 48)
HOW = {"batch_size": 16, "seed": 3, "backend": "numpy"}


def network():
    graph, random = tx.Graph(opsets={"ai.onnx": 21}), np.random.default_rng(1)
    x = graph.input("x", "float32", ("batch", 4))
    kernel = graph.variable("kernel", random.standard_normal((4, 3)).astype(np.float32))
    bias = graph.variable("bias", np.zeros(3, np.float32))
    scale = graph.variable("scale", np.float32(2))
    graph.output("scores", (ops.matmul(x, kernel) + bias) * scale)
    return graph


def fitted(graph, epochs, **more):
    how = {"loss": "softmax_cross_entropy", "optimizer": "adam"} if graph.training_state is None else {}
    tt.fit(graph, DATA, epochs=epochs, **how, **HOW, **more)
    return graph


def assert_same(one, other):
    assert [v.name for v in one.variables] == [v.name for v in other.variables]
    assert [v.name for v in one.all_inputs] == [v.name for v in other.all_inputs]
    for a, b in zip(one.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a.data.array(), b.data.array(), strict=True)


class Device:
    def __init__(self, process_index):
        self.process_index = process_index


class Shard:
    def __init__(self, array, index, device, replica_id=0):
        self.data, self.index, self.device, self.replica_id = array[index], index, device, replica_id


class Cut:
    """An array as one of two processes sees it: sharded by rows, or replicated."""

    def __init__(self, array, process):
        self.shape, self.device_set, self.sharding = array.shape, {Device(0), Device(1)}, self
        half = array.shape[0] // 2 if array.ndim else 0
        whole = (slice(None),) * array.ndim
        cuts = [(slice(0, half), *whole[1:]), (slice(half, None), *whole[1:])] if half else [whole, whole]
        self.addressable_shards = [Shard(array, cuts[process], Device(process), 0 if half else process)]


def written(folder, steps, number, processes=(0, 1)):
    """Write the parts of some of two processes of a checkpoint; returns the graph."""
    graph = fitted(network(), number)
    state = graph.training_state
    by_name = {v.name: v.data.array() for v in graph.variables}
    by_name |= {name: data.array() for name, data in state.tensors.items()}
    for process in processes:
        shards.write(folder, steps, graph, {k: Cut(a, process) for k, a in by_name.items()}, state.settings, {})
    return graph


def test_training_resumes_from_parts_bit_for_bit(tmp_path):
    graph = fitted(network(), 1, checkpoint=tmp_path / "run.shards", checkpoint_every=2)
    read = tx.load(tmp_path / "run.shards")
    assert_same(read, graph)
    assert_same(fitted(read, 2), fitted(graph, 2))
    assert [each.name for each in (tmp_path / "run.shards").iterdir()] == ["000000003"], "older ones are removed"


def test_one_within_an_epoch_has_what_metrics_need(tmp_path):
    class End(Exception):
        pass

    folder, fed = tmp_path / "run.shards", []

    def batches():
        for k in range(3):
            if fed.append(k) or len(fed) == 3:
                raise End
            yield tuple(part[k * 16 : k * 16 + 16] for part in DATA)

    graph = network()
    how = {"loss": "softmax_cross_entropy", "metrics": ["accuracy"], "backend": "numpy"}
    with pytest.raises(End):
        tt.fit(graph, batches(), checkpoint=folder, checkpoint_every=1, **how)
    settings = tx.load(folder).training_state.settings
    assert (settings["epoch"], settings["samples"]) == (0, 32)


def test_the_parts_of_two_processes_are_one_checkpoint(tmp_path):
    graph = written(tmp_path / "run.shards", 3, 1)
    (place,) = (tmp_path / "run.shards").iterdir()
    sizes = [path.stat().st_size for path in sorted(place.glob("part-*"))]
    assert len(sizes) == 2
    read = tx.load(tmp_path / "run.shards")
    assert_same(read, graph)
    assert_same(fitted(read, 1), fitted(graph, 1))


def test_incomplete_checkpoints_are_ignored(tmp_path):
    folder = tmp_path / "run.shards"
    graph = written(folder, 3, 1)
    written(folder, 6, 2, processes=[0])  # the other process was killed before it wrote
    assert_same(tx.load(folder), graph)
    later = written(folder, 6, 2, processes=[1])
    assert_same(tx.load(folder), later)
    other = written(folder, 5, 2)  # of a training that resumed from an earlier checkpoint
    assert_same(tx.load(folder), other)
    assert sorted(each.name for each in folder.iterdir()) == ["000000003", "000000005"]


def test_a_part_of_an_earlier_training_is_not_taken_for_one_of_this(tmp_path):
    folder = tmp_path / "run.shards"
    graph = written(folder, 3, 1)
    written(folder, 6, 2, processes=[1])  # of a training whose first process was killed before it wrote
    fitted(tx.load(folder), 0, checkpoint=folder)
    written(folder, 6, 1, processes=[0])  # now the first process of another training writes
    assert_same(tx.load(folder), graph)


def test_an_end_while_parts_are_written_loses_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "run.shards"
    graph = written(folder, 3, 1)
    for broken in ("_write_part", "_write_graph"):
        with monkeypatch.context() as patch:
            patch.setattr(shards, broken, lambda *_, **__: (_ for _ in ()).throw(SystemExit))
            with pytest.raises(SystemExit):
                written(folder, 6, 2)
        assert_same(tx.load(folder), graph)


def test_missing_parts_are_named(tmp_path):
    folder = tmp_path / "run.shards"
    written(folder, 3, 1, processes=[0])
    with pytest.raises(tx.InvalidCall, match=r"(?s)all of its parts.*000000003 without part-00001-of-00002") as refused:
        tx.load(folder)
    assert "copy what every process wrote" in str(refused.value)
    (folder / "000000003" / shards.STATE).unlink()
    with pytest.raises(tx.InvalidCall, match=r"without state\.json"):
        tx.load(folder)
    shutil.rmtree(folder / "000000003")
    with pytest.raises(tx.InvalidCall, match="no checkpoint"):
        tx.load(folder)


def test_parts_that_do_not_fit_are_refused(tmp_path):
    folder = tmp_path / "run.shards"
    written(folder, 3, 1)
    first, second = sorted((folder / "000000003").glob("part-*"))
    kept = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(tx.InvalidModel, match="are of several checkpoints"):
        tx.load(folder)
    second.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(tx.TenonnxError, match="part-00001"):
        tx.load(folder)
    second.write_bytes(kept)
    report = json.loads((folder / "000000003" / shards.STATE).read_text())
    (folder / "000000003" / shards.STATE).write_text(json.dumps({**report, "trained": ["other"]}))
    with pytest.raises(tx.InvalidModel, match="no other"):
        tx.load(folder)


def test_invalid_options_of_checkpoints_are_refused(tmp_path):
    with pytest.raises(tx.InvalidCall, match="patience"):
        fitted(network(), 1, checkpoint=tmp_path / "run.shards", patience=1)
    (tmp_path / "run.shards").write_text("a file")
    with pytest.raises(tx.InvalidCall, match="cannot write a checkpoint in parts"):
        fitted(network(), 1, checkpoint=tmp_path / "run.shards")


def test_the_command_line_writes_parts_and_resumes_from_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tx.export(network(), "model.onnx")
    np.savez("data.npz", x=DATA[0], labels=DATA[1])
    command = ["train", "model.onnx", "--data", "data.npz", "--checkpoint", "run.shards", "--backend", "numpy"]
    assert main([*command, "--loss", "softmax_cross_entropy", "--batch-size", "16", "-o", "one.safetensors"]) == 0
    assert main([*command, "--resume", "run.shards", "-o", "two.safetensors"]) == 0
    assert tx.load("run.shards").training_state.settings["epoch"] == 2
    assert_same(tx.load("run.shards"), tx.load("two.safetensors"))
    (part,) = (tmp_path / "run.shards").glob("*6/part-*")
    part.unlink()
    shutil.rmtree(tmp_path / "run.shards" / "000000003", ignore_errors=True)
    capsys.readouterr()
    assert main([*command, "--resume", "run.shards", "-o", "three.safetensors"]) == 2
    assert "without part-00000-of-00001" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"parts": 1000000000}',
        '{"parts": -5}',
        '{"parts": 0}',
        '"x"',
        '{"parts": NaN}',
        '{"parts": 1e999}',
        "\0",
    ],
)
def test_states_that_others_wrote(text, tmp_path):
    place = tmp_path / "c.shards" / "000000001"
    place.mkdir(parents=True)
    (place / "state.json").write_text(text)
    network().save(place / "graph.safetensors")
    with pytest.raises(tx.InvalidCall, match="all of its parts"):
        tx.load(tmp_path / "c.shards")


def test_a_thousand_million_parts_are_not_listed(tmp_path):
    place = tmp_path / "c.shards" / "000000001"
    place.mkdir(parents=True)
    contents = {"parts": 10**9, "trained": [], "variables": [], "inputs": [], "settings": {}}
    (place / "state.json").write_text(json.dumps(contents))
    with pytest.raises(tx.InvalidCall, match="part-00000-of-1000000000"):
        tx.load(tmp_path / "c.shards")


def test_a_state_that_is_a_link_is_not_read(tmp_path):
    place = tmp_path / "c.shards" / "000000001"
    place.mkdir(parents=True)
    (tmp_path / "other.json").write_text('{"parts": 1}')
    (place / "state.json").symlink_to(tmp_path / "other.json")
    with pytest.raises(tx.TenonnxError):
        tx.load(tmp_path / "c.shards")


@pytest.mark.parametrize("name", ["²", "9" * 200, "-1"])
def test_folders_with_other_names_are_no_checkpoints(name, tmp_path):
    (tmp_path / "c.shards" / name).mkdir(parents=True)
    with pytest.raises(tx.InvalidCall, match="no checkpoint"):
        tx.load(tmp_path / "c.shards")
