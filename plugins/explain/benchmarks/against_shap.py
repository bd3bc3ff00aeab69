"""Comparison of TreeSHAP with the package shap: differences of the values, and times of both in the same process.

Needs shap, scikit-learn, xgboost-cpu, lightgbm and catboost:

    pip install shap scikit-learn xgboost-cpu lightgbm catboost onnxruntime
    python plugins/explain/benchmarks/against_shap.py
"""

import argparse
import time
import warnings
from functools import partial

import catboost
import lightgbm
import numpy as np
import shap
import xgboost
from sklearn import datasets, ensemble

import tenonnx as tx

warnings.simplefilter("ignore")

ROWS, SHOWN = 200, 20

FORESTS = {
    "RandomForestClassifier": ensemble.RandomForestClassifier(100, max_depth=8, random_state=0),
    "ExtraTreesRegressor": ensemble.ExtraTreesRegressor(50, max_depth=10, random_state=0),
    "GradientBoostingClassifier": ensemble.GradientBoostingClassifier(n_estimators=100, random_state=0),
    "HistGradientBoostingClassifier": ensemble.HistGradientBoostingClassifier(max_iter=100, random_state=0),
    "XGBClassifier": xgboost.XGBClassifier(n_estimators=100),
    "LGBMClassifier": lightgbm.LGBMClassifier(n_estimators=100, verbose=-1),
    "CatBoostClassifier": catboost.CatBoostClassifier(iterations=100, verbose=0, allow_writing_files=False),
}


def fastest(function, times=3):
    """The result of a function, and the time of its fastest call in seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def off_thresholds(x, model):
    """Rows whose values differ from all thresholds of a scikit-learn forest in float32.

    For values that equal a threshold up to rounding, shap follows another branch than ``predict``.
    """
    x = x.copy()
    for tree in (each.tree_ for each in np.ravel(getattr(model, "estimators_", []))):
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            if feature >= 0:
                near = x[:, feature] == np.float32(threshold)
                x[near, feature] = np.nextafter(x[near, feature], np.float32(np.inf))
    return x


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=FORESTS, help="names of models, by default all")
    chosen = parser.parse_args().models
    table = datasets.load_breast_cancer()
    x, y = table.data.astype(np.float32), table.target
    print(f"{ROWS} rows, {x.shape[1]} features, {SHOWN} background rows; milliseconds")
    heads = f"{'difference':>12}{'tenonnx':>10}{'shap':>10}"
    print(f"{'model':32}{heads}   interventional:{heads}")
    for name, model in ((name, FORESTS[name]) for name in chosen):
        model.fit(x, y)
        graph = tx.load(model)
        rows = off_thresholds(x, model)
        feeds = {graph.inputs[0].name: rows[:ROWS]}
        line = f"{name:32}"
        for shown in (None, rows[:SHOWN]):
            explained = tx.explain(graph, "tree-shap", background=shown, interventional=shown is not None)
            output = next(value.name for value in explained.outputs if value.name.endswith("/attribution"))
            program = explained.compile("onnxruntime")
            ours, seconds = fastest(partial(program, feeds))
            ours = ours[output]
            kind = "tree_path_dependent" if shown is None else "interventional"
            explainer = shap.TreeExplainer(model, shown, feature_perturbation=kind)
            theirs, others = fastest(partial(explainer.shap_values, rows[:ROWS], check_additivity=False))
            difference = np.abs(ours - np.asarray(theirs)).max()
            line += f"{difference:12.1e}{seconds * 1e3:10.1f}{others * 1e3:10.1f}" + " " * (18 if shown is None else 0)
        print(line, flush=True)


if __name__ == "__main__":
    main()
