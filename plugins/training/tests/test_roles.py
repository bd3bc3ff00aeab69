"""Parameter roles through transforms, files of both formats, and pickles."""

import json
import pickle

import numpy as np
import pytest

import tenonnx as tx
from tenonnx.errors import InvalidModel
from tenonnx.extend.formats import Role
from tenonnx.extend.transforms import trainable_variables
from tenonnx.formats.onnx.parameter_roles import KEY

ROLES = {"w": Role("parameter", (0, 2)), "mean": Role("buffer"), "b": Role("frozen", permutation=(1, 0))}


def graph_with_roles():
    graph = tx.Graph("net", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 3))
    mean = graph.variable("mean", np.float32([1, 2, 3]))
    w = graph.variable("w", np.ones((3, 2), np.float32))
    b = graph.variable("b", np.ones((1, 2), np.float32))
    graph.output("y", (x - mean) @ w + b)
    for value in graph.variables:
        value.role = ROLES[value.name]
    return graph


def roles(graph):
    return {value.name: value.role for value in graph.variables}


def test_roles_go_with_variables(tmp_path):
    graph = graph_with_roles()
    assert roles(graph.copy()) == roles(tx.retarget(graph, 13)) == roles(pickle.loads(pickle.dumps(graph))) == ROLES
    tx.export(graph, tmp_path / "net.onnx")
    graph.save(tmp_path / "net.safetensors")
    for name in ("net.onnx", "net.safetensors"):
        read = tx.load(tmp_path / name)
        assert roles(read) == ROLES
        assert KEY not in read.metadata
    read.rename("mean", "center")
    tx.export(read, tmp_path / "again.onnx")
    assert roles(tx.load(tmp_path / "again.onnx"))["center"] == Role("buffer")


def test_values_computed_from_buffers_are_no_parameters(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 3))
    square = graph.variable("square", np.eye(3, dtype=np.float32))
    square.role = Role("buffer")
    graph.output("y", x @ (square + square))
    tx.export(tx.simplify(graph), tmp_path / "net.onnx")
    read = tx.load(tmp_path / "net.onnx").infer()
    assert trainable_variables(read).parameters == []
    assert [value.role for value in read.variables] == [Role("buffer")]


def test_a_file_without_roles_has_no_metadata_about_them():
    graph = graph_with_roles()
    for value in graph.variables:
        value.role = None
    assert KEY not in {entry.key for entry in graph.to_proto().metadata_props}
    assert trainable_variables(graph.infer()).parameters == ["w", "b"]
    assert trainable_variables(graph).undeclared == ["mean"]


def test_names_that_are_gone_are_passed_over():
    model = graph_with_roles().to_proto()
    (entry,) = model.metadata_props
    report = json.loads(entry.value)
    entry.value = json.dumps({**report, "buffer": ["gone", "mean"], "more": 1})
    assert roles(tx.load(model)) == ROLES


@pytest.mark.parametrize(
    "text", ["nothing", "[]", '{"buffer": "mean"}', '{"fixed_rows": {"w": 3}, "parameter": ["w"]}', '{"fixed_rows": 3}']
)
def test_roles_that_cannot_be_read(text):
    model = graph_with_roles().to_proto()
    model.metadata_props[0].value = text
    with pytest.raises(InvalidModel, match=KEY):
        tx.load(model)


# ----- trained variables of a file without roles ----------------------------------------------------------------------


def taken(text, **contents):
    """The variables that are trained by default in a model given as ONNX text."""
    import onnx

    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> {text}')
    graph = tx.load(model)
    for value in graph.variables:
        value.data = tx.ArrayConstant(contents[value.name]) if value.name in contents else value.data
    return trainable_variables(graph.infer()).parameters


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("c = Sub(x, mean) d = Div(c, std) y = MatMul(d, w)", ["w"]),
        ("c = Mul(x, std) d = Add(c, mean) y = MatMul(d, w)", ["w"]),
        ("c = MatMul(x, w) d = Mul(c, std) y = Add(d, mean)", ["mean", "std", "w"]),
        ("c = MatMul(x, w) y = Sub(c, mean)", ["w"]),
        ("t = Transpose(w) c = MatMul(x, t) y = Add(mean, c)", ["mean", "w"]),
        ("s = Mul(w, std) y = MatMul(x, s)", ["std", "w"]),
        ("y = Gemm(x, w, mean)", ["mean", "w"]),
        ("y = LayerNormalization(x, std, mean)", ["mean", "std"]),
        ("c = com.microsoft.FusedMatMul(x, w) y = com.microsoft.BiasGelu(c, mean)", ["mean", "w"]),
        ("c = Mul(x, std) y = Add(c, mean)", ["mean", "std"]),  # a model without other variables
        ("h = Equal(x, x) i = Cast<to = 1>(h) y = MatMul(i, w)", []),  # inputs of no floating-point data
    ],
)
def test_weights_by_how_they_are_used(body, expected):
    head = "g (float[n, 2] x) => (float[n, 2] y) <float[2] mean = {1, 2}, float[2] std = {3, 4}, float[2, 2] w = "
    assert sorted(taken(f"{head} {{1, 2, 3, 4}}> {{ {body} }}")) == expected


def test_masks_are_not_trained_as_biases():
    head = "g (float[n, 2] x) => (float[n, 2] y) <float[2, 2] m = {0, -100000, 0, 0}, float[2, 2] w = {1, 2, 3, 4}>"
    assert taken(f"{head} {{ c = MatMul(x, w) y = Add(c, m) }}") == ["w"]


def test_ops_of_packages_that_say_nothing_keep_what_they_are_given():
    from tenonnx.extend import op

    @op("Scaled", domain="com.example", since=1)
    def scaled(X, w):
        return X * w

    graph = tx.Graph(opsets={"com.example": 1})
    x, w = graph.input("x", "float32", ("n", 2)), graph.variable("w", np.float32([1, 2]))
    graph.output("y", scaled(x, w))
    assert trainable_variables(graph.infer()).parameters == ["w"]


def test_patterns_select_buffers_if_they_match_nothing_else():
    import tenonnx_training as tt

    def parameters(patterns):
        return tt.TrainingStep(graph_with_roles(), "mean_squared_error", trainable=patterns)._step_graph.parameters

    assert parameters(None) == ["w"]
    assert parameters("*") == ["w", "b"]  # includes frozen parameters, but no buffers
    assert parameters(["*", "mean"]) == ["mean", "w", "b"]
    assert parameters("me*") == ["mean"]
    assert parameters("!b") == ["w"]
    notes = tt.TrainingStep(graph_with_roles(), "mean_squared_error").notes
    assert "trains 1 of 3 variables: w" in notes
    assert "not trained, being buffers (choose with trainable= / --trainable): mean" in notes
    assert "not trained, being frozen (choose with trainable= / --trainable): b" in notes
    assert "rows that are not updated: 0, 2 of w" in notes


def test_rows_stay_under_every_optimizer_and_recipe():
    import tenonnx_training as tt

    x, y = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    recipes = ({}, {"accumulate": 2}, {"clip_norm": 0.1}, {"average": 0.9}, {"precision": "float16"})
    optimizers = [tt.AdamW(0.1, weight_decay=0.5), tt.Momentum(0.1), tt.Lion(0.1, weight_decay=0.5)]
    for optimizer in optimizers:
        for recipe in recipes if optimizer is optimizers[0] else ({},):
            graph = graph_with_roles()
            tt.fit(graph, (x, y), loss="mean_squared_error", optimizer=optimizer, batch_size=2, **recipe)
            after = {value.name: value.data.array() for value in graph.variables}
            np.testing.assert_array_equal(after["w"][[0, 2]], 1)
            assert (after["w"][1] != 1).all()
            np.testing.assert_array_equal(after["mean"], [1, 2, 3])
            np.testing.assert_array_equal(after["b"], 1)
