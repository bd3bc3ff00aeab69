"""Booster files with invalid trees: rejected by our checks, or by a parser that only crashes its own process."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost

import tenonnx as tx
from tenonnx_frontends import UnverifiedWarning
from tenonnx_sklearn import booster_process
from tenonnx_sklearn.booster_structure import check_structure

_RANDOM = np.random.default_rng(0)
_X = _RANDOM.normal(size=(80, 4))
_Y = (_X[:, 0] + _X[:, 1] > 0).astype(float)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("boosters")
    settings = {"verbose": -1, "min_data_in_leaf": 2, "num_threads": 1}
    lightgbm.train(settings, lightgbm.Dataset(_X, _Y), 2).save_model(folder / "m.txt")
    booster = xgboost.train({"max_depth": 3, "nthread": 1}, xgboost.DMatrix(_X, _Y), 2)
    booster.save_model(folder / "m.json")
    booster.save_model(folder / "m.ubj")
    return {path.suffix[1:]: path for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["txt", "json", "ubj"])
def test_honest_files_are_read(kind: str, files: dict[str, Path]) -> None:
    check_structure(files[kind].read_bytes(), "m")
    assert tx.load(files[kind]).nodes


def _tree(model: Any) -> Any:
    return model["learner"]["gradient_booster"]["model"]["trees"][0]


def _set(name: str, place: int, value: Any) -> Callable[[Any], None]:
    return lambda model: _tree(model)[name].__setitem__(place, value)


def _change(**fields: Any) -> Callable[[Any], None]:
    return lambda model: _tree(model).update(fields)


XGBOOST: dict[str, Callable[[Any], None]] = {
    "child beyond": _set("left_children", 0, 1000),
    "huge child": _set("right_children", 0, 2**31 - 1),
    "child is the root": _set("left_children", 1, 0),
    "cycle": _set("left_children", 1, 1),
    "two parents": _set("right_children", 0, 1),
    "one child": _set("right_children", 0, -1),
    "feature beyond": _set("split_indices", 0, 4000),
    "feature below": _set("split_indices", 0, -1),
    "no children": _change(left_children=[]),
    "short lists": _change(split_conditions=[1.0]),
    "children are text": _change(left_children="abc"),
    "children are null": _change(left_children=None),
    "no size": lambda model: _tree(model).pop("tree_param"),
    "size of a list": lambda model: _tree(model)["tree_param"].update(num_nodes=[]),
    "size too large": lambda model: _tree(model)["tree_param"].update(num_nodes="1000000"),
    "empty tree": lambda model: _tree(model)["tree_param"].update(num_nodes="0"),
    "categories of a node beyond": _change(categories_nodes=[99], categories_segments=[0], categories_sizes=[0]),
    "categories beyond": _change(categories_nodes=[0], categories_segments=[5], categories_sizes=[9], categories=[1]),
    "tree of an output beyond": lambda m: m["learner"]["gradient_booster"]["model"].update(tree_info=[0, 7]),
    "trees without outputs": lambda m: m["learner"]["gradient_booster"]["model"].update(tree_info=[]),
    "no learner": lambda model: model.update(learner=[]),
    "no features": lambda m: m["learner"]["learner_model_param"].update(num_feature="0"),
}


@pytest.mark.parametrize("change", XGBOOST.values(), ids=XGBOOST)
def test_broken_trees_of_xgboost(change: Callable[[Any], None], files: dict[str, Path], tmp_path: Path) -> None:
    model = json.loads(files["json"].read_text())
    change(model)
    with pytest.raises(tx.InvalidModel):
        check_structure(json.dumps(model).encode(), "m")


LIGHTGBM = {
    "child beyond": ("left_child=", "left_child=900 "),
    "leaf beyond": ("right_child=", "right_child=-900 "),
    "feature beyond": ("split_feature=", "split_feature=77 "),
    "negative feature": ("split_feature=", "split_feature=-1 "),
    "more leaves": ("num_leaves=", "num_leaves=9"),
    "no leaves": ("num_leaves=", "num_leaves=-"),
    "leaves are text": ("num_leaves=", "num_leaves=x"),
    "no values": ("leaf_value=", "nothing="),
    "value is text": ("leaf_value=", "leaf_value=x "),
    "no children": ("left_child=", "nothing="),
    "no thresholds": ("threshold=", "nothing="),
    "threshold is no number": ("threshold=", "threshold=nan "),
    "decision of categories": ("decision_type=", "decision_type=1 "),
    "features beyond": ("max_feature_idx=", "max_feature_idx=99999"),
    "negative features": ("max_feature_idx=", "max_feature_idx=-"),
    "no features": ("max_feature_idx=", "nothing="),
    "no names": ("feature_names=", "nothing="),
    "no ranges": ("feature_infos=", "nothing="),
    "no trees per round": ("num_tree_per_iteration=", "num_tree_per_iteration=0 "),
    "no classes": ("num_class=", "num_class=-"),
    "other sizes": ("tree_sizes=", "tree_sizes=1 "),
    "huge sizes": ("tree_sizes=", "tree_sizes=99999999999"),
}


@pytest.mark.parametrize("change", LIGHTGBM.values(), ids=LIGHTGBM)
def test_broken_trees_of_lightgbm(change: tuple[str, str], files: dict[str, Path]) -> None:
    text = files["txt"].read_text()
    assert change[0] in text
    with pytest.raises(tx.InvalidModel):
        check_structure(text.replace(*change).encode(), "m")


@pytest.mark.parametrize(
    "contents", [b"{", b'{"learner"', b"{L\x00", b"{i\x07learner", b"{i\x07learner[$d#L" + bytes(8)]
)
def test_cut_files(contents: bytes) -> None:
    with pytest.raises(tx.InvalidModel):
        check_structure(contents, "m")


@pytest.mark.parametrize("kind", ["txt", "json", "ubj"])
def test_mutants_end_in_our_errors(kind: str, files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / f"m.{kind}"
    for number in range(12):
        draw, data = random.Random(number), bytearray(files[kind].read_bytes())
        for _ in range(3):
            data[draw.randrange(len(data))] = draw.choice(b"0123456789\x00\xff{[-")
        path.write_bytes(data)
        try:
            tx.load(path)
        except tx.TenonnxError as error:
            refusal = error
            assert not isinstance(refusal, tx.PluginError)


def _serve(monkeypatch: pytest.MonkeyPatch, path: Path, code: str) -> None:
    """Make the worker process execute further code after its own."""
    path.write_text(f"{Path(booster_process.__file__).read_text()}\nimport os, signal, time\n{code}\n")
    monkeypatch.setattr("tenonnx_sklearn.booster_files._FUNCTIONS", path)


CRASH = "os.kill(os.getpid(), signal.SIGSEGV)"


def test_a_crash_of_a_reader_is_an_error(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _serve(monkeypatch, tmp_path / "crashing.py", f"def describe(*given): {CRASH}")
    with pytest.raises(tx.InvalidModel, match=r"LightGBM crashed its process.*SIGSEGV"):
        tx.load(files["txt"])


def test_a_predictor_that_crashes_leaves_the_graph_unverified(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _serve(monkeypatch, tmp_path / "ending.py", f"def predict(*given): {CRASH}")
    output = r"not verified against scikit-learn: LightGBM crashed its process \(SIGSEGV\)"
    with pytest.warns(UnverifiedWarning, match=output):
        assert tx.load(files["txt"]).nodes
    result = tx.convert(files["txt"], tmp_path / "m.onnx").verification
    assert not result.outputs
    assert set(result.unverified) == {"variable"}
    with pytest.raises(tx.VerificationFailed, match="nothing could be compared"):
        tx.convert(files["txt"], tmp_path / "n.onnx", verify=True)
    assert [path.name for path in tmp_path.glob("*.onnx")] == ["m.onnx"]


def test_nothing_of_the_package_runs_in_this_process(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **named: Any) -> None:
        raise AssertionError("the package was called")

    monkeypatch.setattr(lightgbm, "Booster", refuse)
    monkeypatch.setattr(xgboost, "Booster", refuse)
    monkeypatch.setattr(xgboost, "DMatrix", refuse)
    for kind in ("txt", "json", "ubj"):
        assert tx.load(files[kind]).nodes


def test_a_booster_without_trees_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    text = files["txt"].read_text("utf-8")
    path = tmp_path / "m.txt"
    path.write_text(text[: text.index("tree_sizes")] + text[text.index("end of trees") :], "utf-8")
    with pytest.raises(tx.NotRepresentable, match="no trees"):
        tx.load(path)
