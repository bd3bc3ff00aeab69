"""``tenonnx grad`` and ``tenonnx train``."""

import json

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from trained_models import EXAMPLES, X, Y, digits, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_cli import main

CNN = str(EXAMPLES / "digits_cnn" / "digits-cnn.onnx")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    _, images, labels = digits()
    path = tmp_path_factory.mktemp("data") / "train.npz"
    np.savez(path, images=images[:256], labels=labels[:256])
    return str(path)


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_a_model_is_tuned_and_resumed(tmp_path, data, capsys):
    common = (CNN, "--data", data, "--loss", "softmax_cross_entropy", "--lr", "1e-3", "--batch-size", 64)
    whole, tuned, state = (tmp_path / name for name in ("whole.onnx", "tuned.onnx", "state.safetensors"))
    assert run("train", *common, "--epochs", 2, "-o", whole) == 0
    assert run("train", *common, "--epochs", 1, "--checkpoint", state, "--metric", "accuracy") == 0
    assert run("train", *common, "--epochs", 1, "--resume", state, "-o", tuned) == 0
    assert onnx.load(tuned) == onnx.load(whole)
    shown = capsys.readouterr().err
    assert shown.count("epoch 1: loss") == 2
    assert shown.count("epoch 2: loss") == 2
    assert "accuracy" in shown


def test_parameters_trained_until_ctrl_c_are_written(tmp_path, data, capsys, monkeypatch):
    steps, trained = [], tt.TrainingStep.train

    def interrupted(step, batch):
        if len(steps) == 2:
            raise KeyboardInterrupt
        steps.append(batch)
        return trained(step, batch)

    monkeypatch.setattr(tt.TrainingStep, "train", interrupted)
    tuned, state = tmp_path / "tuned.onnx", tmp_path / "state.safetensors"
    arguments = ("--data", data, "--loss", "softmax_cross_entropy", "--epochs", 3, "--batch-size", 64)
    assert run("train", CNN, *arguments, "-o", tuned, "--checkpoint", state) == 130
    assert f"interrupted after 2 steps: resume with --resume {state}" in capsys.readouterr().err
    assert onnx.load(tuned) != onnx.load(CNN)
    assert tx.load(state).training_state.tensors["training__step"].array() == 2


@pytest.mark.parametrize("place", ["training_step.step_graph", "TrainingStep.train", "commands.data.DataOptions.read"])
def test_ctrl_c_before_the_first_step_reports_that_nothing_was_trained(place, tmp_path, data, capsys, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"tenonnx_training.{place}", stopped)
    tuned = tmp_path / "tuned.onnx"
    assert run("train", CNN, "--data", data, "--loss", "softmax_cross_entropy", "-o", tuned) == 130
    printed = capsys.readouterr().err
    assert "interrupted before the first step: nothing was trained, run the same command again" in printed
    assert "--resume" not in printed
    assert not tuned.exists()


def checkpoint(tmp_path, data):
    path = tmp_path / "state.safetensors"
    assert run("train", CNN, "--data", data, "--loss", "softmax_cross_entropy", "--checkpoint", path) == 0
    return path


def test_a_checkpoint_that_is_torn(tmp_path, data, capsys):
    path = checkpoint(tmp_path, data)
    whole = path.read_bytes()
    capsys.readouterr()
    common = (CNN, "--data", data, "--loss", "softmax_cross_entropy", "-o", tmp_path / "tuned.onnx")
    for torn in (whole[: len(whole) // 2], whole[:20], b"", bytes(len(whole)), whole[:8] + bytes(99) + whole[107:]):
        path.write_bytes(torn)
        assert run("train", *common, "--resume", path) == 2
        shown = capsys.readouterr().err
        assert "state.safetensors" in shown
        assert "Traceback" not in shown


def test_a_checkpoint_of_another_model(tmp_path, data, capsys):
    state, other, arrays = checkpoint(tmp_path, data), tmp_path / "other.onnx", tmp_path / "xy.npz"
    tx.export(linear(), other)
    np.savez(arrays, x=X, y=Y)
    tuned = tmp_path / "tuned.onnx"
    arguments = ("--data", arrays, "--loss", "mean_squared_error", "--resume", state, "-o", tuned)
    assert run("train", other, *arguments) == 2
    shown = capsys.readouterr().err
    assert "no w__adam_m" in shown
    assert "block1" in shown
    assert not tuned.exists()


def test_notes_are_shown(tmp_path, capsys):
    other, arrays = tmp_path / "other.onnx", tmp_path / "xy.npz"
    tx.export(linear(), other)
    np.savez(arrays, x=X, y=Y)
    tuned = tmp_path / "tuned.onnx"
    assert run("train", other, "--data", arrays, "--loss", "mean_squared_error", "-o", tuned) == 0
    assert "note: trains single-element initializers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ((), "no output file is given"),
        (("-o", "tuned.pt"), "--output: unknown file format"),
        (("-o", "nowhere/tuned.onnx"), "folder"),
        (("--checkpoint", "state.onnx"), "--checkpoint: unknown file format"),
    ],
)
def test_results_need_a_place_before_the_training(paths, message, data, capsys, monkeypatch):
    monkeypatch.setattr(tt.TrainingStep, "__call__", lambda *_: pytest.fail("it trains"))
    assert run("train", CNN, "--data", data, "--loss", "softmax_cross_entropy", *paths) == 2
    assert message in capsys.readouterr().err


def test_untrained_variables_are_written_unchanged(tmp_path, data):
    """Contents may be in typed fields such as float_data."""
    model = onnx.load(CNN)
    (kernel,) = (tensor for tensor in model.graph.initializer if tensor.name == "block1.conv.weight")
    numbers = onnx.numpy_helper.to_array(kernel).reshape(-1)
    kernel.ClearField("raw_data")
    kernel.float_data.extend(numbers)
    source, state, tuned = (tmp_path / name for name in ("source.onnx", "state.safetensors", "tuned.onnx"))
    onnx.save(model, source)
    common = (source, "--data", data, "--loss", "softmax_cross_entropy", "--trainable", "classifier.weight, *.bias")
    assert run("train", *common, "--checkpoint", state, "--learning-rate", "1e-3") == 0
    assert run("train", *common, "--resume", state, "-o", tuned, "--epochs", 0) == 0
    result = {tensor.name: tensor for tensor in onnx.load(tuned).graph.initializer}
    assert result["block1.conv.weight"] == kernel
    assert result["classifier.weight"] not in model.graph.initializer


def test_a_step_is_emitted(tmp_path, data):
    step = tmp_path / "step.onnx"
    assert run("train", CNN, "--data", data, "--loss", "softmax_cross_entropy", "--epochs", 0, "--emit-step", step) == 0
    outputs = [output.name for output in onnxruntime.InferenceSession(step).get_outputs()]
    assert "loss" in outputs
    assert "classifier.weight/next" in outputs


def test_results_as_json(tmp_path, data, capsys):
    arguments = ("--data", data, "--validation", data, "--loss", "softmax_cross_entropy", "--json")
    assert run("train", CNN, *arguments, "-o", tmp_path / "tuned.onnx", "--include-training-state") == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["epochs"][0]) == {"epoch", "loss", "validation_loss"}
    assert tx.load(tmp_path / "tuned.onnx").training_state is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "hinge"], "no loss and no value"),
        (["--loss", "softmax_cross_entropy", "--optimizer", "x"], "no optimizer"),
        (["--loss", "softmax_cross_entropy", "--trainable", "x.*"], "matches no variable"),
        (["--loss", "softmax_cross_entropy", "--resume", CNN], "training state"),
        (["--loss", "softmax_cross_entropy", "--metric", "x"], "no metric"),
        (["--loss", "softmax_cross_entropy", "--validation", "no.npz"], "cannot read"),
    ],
)
def test_bad_use_gets_a_message(arguments, message, tmp_path, data, capsys):
    assert run("train", CNN, "--data", data, "-o", tmp_path / "tuned.onnx", *arguments) == 2
    assert message in capsys.readouterr().err


def test_unsuitable_data_is_refused(tmp_path, capsys):
    path = tmp_path / "wrong.npz"
    np.savez(path, pixels=np.zeros(3), labels=np.zeros(3), more=np.zeros(3))
    common = (CNN, "--data", path, "--loss", "softmax_cross_entropy", "-o", tmp_path / "tuned.onnx")
    assert run("train", *common) == 2
    assert 'has no array "images"' in capsys.readouterr().err
    np.savez(path, images=np.zeros((3, 1, 8, 8), np.float32), scores=np.zeros(3), more=np.zeros(3))
    assert run("train", *common) == 2
    assert "--labels scores" in capsys.readouterr().err


def test_a_gradient_is_a_model(tmp_path, capsys):
    path = tmp_path / "grad.onnx"
    arguments = ("--of", "scores", "--wrt", "images,classifier.*", "--cotangent", "g", "--opset", "17")
    assert run("grad", CNN, *arguments, "-o", path) == 0
    assert "classifier.weight/grad" in capsys.readouterr().out
    _, images, _ = digits()
    session = onnxruntime.InferenceSession(path)
    cotangent = np.ones((4, 10), np.float32)
    result = dict(
        zip(
            [output.name for output in session.get_outputs()],
            session.run(None, {"images": images[:4], "g": cotangent}),
            strict=True,
        )
    )
    np.testing.assert_allclose(result["classifier.bias/grad"], np.full(10, 4))
    assert result["images/grad"].shape == (4, 1, 8, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--of", "scores", "--wrt", "images"], "scalar"),
        (["--of", "nothing", "--wrt", "images"], "no value"),
        (["--of", "scores", "--wrt", "nothing.*"], "--wrt"),
    ],
)
def test_a_missing_gradient(arguments, message, tmp_path, capsys):
    assert run("grad", CNN, *arguments, "-o", tmp_path / "g.onnx") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "g.onnx").exists()


def test_rows_of_a_table_are_data(tmp_path):
    graph = linear()
    tx.export(graph, tmp_path / "linear.onnx")
    rows = "\n".join(["a;b;target", *(f"{x[0]};{x[1]};{y[0]}" for x, y in zip(X, Y, strict=True))])
    (tmp_path / "rows.csv").write_text(rows)
    np.savez(tmp_path / "rows.npz", x=X, target=Y)
    common = (tmp_path / "linear.onnx", "--loss", "mean_squared_error", "--labels", "target", "--lr", 0.1)
    for kind in ("csv", "npz"):
        data = tmp_path / f"rows.{kind}"
        assert run("train", *common, "--data", data, "--validation", data, "-o", tmp_path / f"{kind}.onnx") == 0
    assert onnx.load(tmp_path / "csv.onnx") == onnx.load(tmp_path / "npz.onnx")


def test_labels_of_a_table_are_classes_where_the_loss_has_them(tmp_path, capsys):
    classes = tx.Graph("classes", opsets={"ai.onnx": 21})
    w = classes.variable("w", np.float32([[1, 0, 2], [0, 1, -1]]))
    a, b = (classes.input(name, "float32", ("batch", 1)) for name in "ab")
    classes.output("y", a @ w[:1] + b @ w[1:])
    tx.export(classes, tmp_path / "classes.onnx")
    (tmp_path / "rows.csv").write_text("a,kind,b\n1,0,2\n3,2,1\n")
    common = (tmp_path / "classes.onnx", "--loss", "softmax_cross_entropy", "-o", tmp_path / "tuned.onnx")
    assert run("train", *common, "--data", tmp_path / "rows.csv") == 0
    (tmp_path / "rows.csv").write_text("a,kind,b\n1,0,1\n1,cat,2\n")
    assert run("train", *common, "--data", tmp_path / "rows.csv") == 2
    output = capsys.readouterr().err
    assert 'line 3, column "kind" is not a value of int64' in output
    assert "give the number of each class" in output


def flowers(folder):
    """A model of three classes and eight rows, whose labels are text, in four formats."""
    graph = tx.Graph("flowers", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch", 2))
    graph.output("y", x @ graph.variable("w", np.float32([[1, 0, 2], [0, 1, -1]])))
    tx.export(graph, folder / "flowers.onnx")
    x, names = np.float32(np.arange(16).reshape(8, 2) % 5), ["tulip", "rose", "daisy", "rose"] * 2
    weights = np.float32(np.arange(8) + 1)
    table = pa.table({"wide": x[:, 0], "long": x[:, 1], "id": range(8), "kind": names, "weight": weights})
    parquet.write_table(table, folder / "r.parquet")
    csv.write_csv(table, folder / "r.csv")
    (folder / "r.jsonl").write_text("\n".join(map(json.dumps, table.to_pylist())))
    numbers = [["daisy", "rose", "tulip"].index(name) for name in names]
    np.savez(folder / "r.npz", x=x, labels=numbers, weight=weights)
    return [folder / "flowers.onnx", "--loss", "softmax_cross_entropy", "--lr", "0.1", "--sample-weights", "weight"]


@pytest.mark.parametrize("name", ["r.parquet", "r.csv", "r.jsonl"])
def test_text_labels_are_numbered_and_named_in_the_model(name, tmp_path, capsys):
    common = flowers(tmp_path)
    assert run("train", *common, "--data", tmp_path / "r.npz", "-o", tmp_path / "numbers.onnx") == 0
    how = ("--data", tmp_path / name, "--columns", "x=wide,long", "--label", "kind")
    assert run("train", *common, *how, "-o", tmp_path / "names.onnx") == 0
    names, numbers = tx.load(tmp_path / "names.onnx"), tx.load(tmp_path / "numbers.onnx")
    np.testing.assert_array_equal(names["w"].data.array(), numbers["w"].data.array())
    assert json.loads(names.metadata["tenonnx.classes"]) == {"kind": ["daisy", "rose", "tulip"]}
    measure = ("--loss", "softmax_cross_entropy", "--metric", "accuracy", "--json")
    capsys.readouterr()
    assert run("evaluate", tmp_path / "names.onnx", *how, *measure) == 0
    result = json.loads(capsys.readouterr().out)
    assert run("evaluate", tmp_path / "numbers.onnx", "--data", tmp_path / "r.npz", "--labels", "labels", *measure) == 0
    expected = json.loads(capsys.readouterr().out)
    assert result["loss"] == expected["loss"]
    assert result["accuracy"] == expected["accuracy"]


@pytest.mark.parametrize("loss", ["triplet", "info_nce"])
def test_text_labels_for_losses_of_embeddings(loss, tmp_path, capsys):
    model, *_ = flowers(tmp_path)
    how = ("--data", tmp_path / "r.csv", "--columns", "x=wide,long", "--label", "kind", "--loss", loss, "--lr", "0.01")
    assert run("train", model, *how, "--epochs", 3, "-o", tmp_path / "tuned.onnx") == 0
    printed = [float(line.split()[3]) for line in capsys.readouterr().err.splitlines() if line.startswith("epoch")]
    assert len(printed) == 3
    assert printed[-1] < printed[0]


def test_a_resumed_training_numbers_classes_as_before(tmp_path, capsys):
    common, state = flowers(tmp_path), tmp_path / "state.safetensors"
    how = ("--columns", "x=wide,long", "--label", "kind")
    assert run("train", *common, "--data", tmp_path / "r.parquet", *how, "--checkpoint", state) == 0
    parquet.write_table(parquet.read_table(tmp_path / "r.parquet").slice(0, 2), tmp_path / "two.parquet")
    more = ("--data", tmp_path / "two.parquet", *how, "--resume", state, "-o", tmp_path / "tuned.onnx")
    assert run("train", *common, *more) == 0
    assert json.loads(tx.load(tmp_path / "tuned.onnx").metadata["tenonnx.classes"])["kind"][0] == "daisy"
    capsys.readouterr()
    assert run("train", *common, *more[:-4], "-o", tmp_path / "tuned.onnx") == 2
    assert "has 2 classes, and the model 3" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["r.parquet", "r.csv"])
@pytest.mark.parametrize("settings", [(), ("--ignore-index", 1)], ids=["plain", "ignore"])
def test_a_resumed_training_knows_that_its_text_labels_are_classes(name, settings, tmp_path, capsys):
    model, *how = flowers(tmp_path)
    data = ("--data", tmp_path / name, "--columns", "x=wide,long", "--label", "kind")
    state, bare = tmp_path / "state.safetensors", (model, *data, "--resume", tmp_path / "state.safetensors")
    assert run("train", model, *how, *data, *settings, "--checkpoint", state) == 0
    before = tx.load(state).training_state.settings["loss"]
    tuned = tmp_path / "tuned.safetensors"
    for more in (), ("--ignore-index", 2), ("--class-axis", 1):
        assert run("train", *bare, *more, "-o", tuned) == 0
        after = tx.load(tuned).training_state.settings["loss"]
        ignored = 2 if "--ignore-index" in more else 1 if settings else None
        assert after == before if not more else after["ignore_index"] == ignored
    capsys.readouterr()
    assert run("train", *bare, "--loss", "mean_squared_error", "-o", tuned) == 2
    assert 'the labels "kind" are strings, which the loss does not read' in capsys.readouterr().err


@pytest.fixture
def full(tmp_path):
    """A folder with a 16 KB model and its data, with a limit of 32 KB for files: a checkpoint has 48 KB."""
    resource = pytest.importorskip("resource", reason="limits of files are of POSIX")
    text = "g (float[n, 64] x) => (float[n, 64] y) <float[64, 64] w = {%s}> { y = MatMul (x, w) }"
    header = '<ir_version: 8, opset_import: ["": 17]> '
    onnx.save(onnx.parser.parse_model(header + text % ", ".join(["0.1"] * 4096)), tmp_path / "m.onnx")
    random = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=random.random((64, 64), np.float32), labels=random.random((64, 64), np.float32))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 10, before[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["c.safetensors", "c.shards"])
@pytest.mark.parametrize("every", [(), ("--checkpoint-every", 1)], ids=["epochs", "batches"])
def test_a_checkpoint_on_a_full_disk_is_a_warning(full, capsys, name, every):
    arguments = ["--data", full / "d.npz", "--loss", "mean_squared_error", "--epochs", 3, "--optimizer", "adam"]
    tuned, plain = full / "tuned.onnx", full / "plain.onnx"
    assert run("train", full / "m.onnx", *arguments, "-o", plain) == 0
    capsys.readouterr()
    assert run("train", full / "m.onnx", *arguments, "-o", tuned, "--checkpoint", full / name, *every) == 0
    shown = capsys.readouterr()
    assert shown.err.count("warning: cannot write the checkpoint") == 1
    assert "epoch 3: loss" in shown.err
    assert "checkpoint:" not in shown.out
    assert tuned.read_bytes() == plain.read_bytes()


def test_a_checkpoint_that_is_the_only_output_has_to_be_written(full, capsys):
    arguments = ["--data", full / "d.npz", "--loss", "mean_squared_error", "--checkpoint", full / "c.safetensors"]
    assert run("train", full / "m.onnx", *arguments, "--json") == 2
    assert "cannot write the checkpoint" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_graph_has_what_was_trained_where_the_checkpoint_fails(full):
    graph = tx.load(full / "m.onnx")
    with np.load(full / "d.npz") as data, pytest.warns(UserWarning, match="cannot write the checkpoint"):
        history = tt.fit(graph, data, loss="mean_squared_error", checkpoint=full / "c.safetensors")
    assert "cannot write the checkpoint" in history.to_dict()["checkpoint_error"]
    assert not np.array_equal(graph.find("w").data.array(), np.full((64, 64), 0.1, np.float32))


@pytest.fixture
def steep(tmp_path):
    """A model that diverges with one step at a learning rate of 2, and data for it."""
    tx.export(linear(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=X, labels=Y)
    return [tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mean_squared_error", "--optimizer", "sgd"]


def test_a_training_that_diverges_stops_with_the_last_good_epoch(steep, tmp_path, capsys):
    tuned, two = tmp_path / "tuned.onnx", tmp_path / "two.onnx"
    assert run("train", *steep, "--lr", "2", "--epochs", 9, "-o", tuned) == 2
    shown = capsys.readouterr().err
    for part in ("the loss is ", " at step ", "--allow-divergence", f"last good epoch was written to {tuned}"):
        assert part in shown
    good = sum(line.startswith("epoch ") for line in shown.splitlines())
    assert run("train", *steep, "--lr", "2", "--epochs", good, "-o", two) == 0
    assert onnx.load(two) == onnx.load(tuned)
    capsys.readouterr()
    assert run("train", *steep, "--lr", "2", "--epochs", 9, "-o", two, "--allow-divergence", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["epochs"]) == 9


def test_a_small_first_loss_may_grow():
    """For a model that fits already, one outlier is not divergence."""
    graph = linear()
    odd = [(X, X @ np.float32([[1], [2]]) + np.float32(0.5)), (X[:1], np.float32([[9]]))]
    history = tt.fit(graph, odd, loss="mean_squared_error", optimizer=tt.SGD(1e-6))
    assert history.losses[0] < 1e-6
    assert history.losses[1] > 1


def test_results_of_an_earlier_training_are_kept(tmp_path, data, capsys):
    common = (CNN, "--data", data, "--metric", "accuracy", "--json")
    state = tmp_path / "state.safetensors"
    assert run("train", *common, "--loss", "softmax_cross_entropy", "--epochs", 2, "--checkpoint", state) == 0
    before = json.loads(capsys.readouterr().out)["epochs"]
    assert run("train", *common, "--resume", state, "-o", tmp_path / "tuned.onnx") == 0
    after = json.loads(capsys.readouterr().out)["epochs"]
    assert after[:2] == before
    assert [epoch["epoch"] for epoch in after] == [1, 2, 3]
    graph = tx.load(state)
    graph.training_state.settings["history"] = [{"epoch": "<b>"}]
    with pytest.raises(tx.InvalidCall, match='invalid "history" in the training state'):
        tt.fit(graph, dict(np.load(data)))


def test_two_models_are_evaluated_side_by_side(tmp_path, data, capsys):
    tuned, common = tmp_path / "tuned.onnx", ("--data", data, "--loss", "softmax_cross_entropy")
    assert run("train", CNN, *common, "--lr", "1e-3", "-o", tuned) == 0
    capsys.readouterr()
    assert run("evaluate", CNN, tuned, *common, "--metric", "accuracy") == 0
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == [CNN, str(tuned), "difference", str(tuned), "is"]
    assert [row[0] for row in rows] == ["loss", "accuracy"]
    assert rows[0][-1] == "better"
    assert run("evaluate", CNN, CNN, *common, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["second"] == {"file": CNN, "loss": result["loss"]}
    assert run("evaluate", CNN, tmp_path / "no.onnx", *common) == 2
    assert "no.onnx" in capsys.readouterr().err
