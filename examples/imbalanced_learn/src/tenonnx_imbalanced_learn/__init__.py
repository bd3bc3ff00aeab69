"""Conversion rules for imbalanced-learn: samplers act in ``fit`` only, and pass rows through afterwards."""

from __future__ import annotations

from typing import Any

from tenonnx_sklearn import Outputs, Table, convert, converts
from tenonnx_sklearn.rules.trees import adaboost_classifier, bagging_classifier, forest_classifier

converts("imblearn.BalancedRandomForestClassifier")(forest_classifier)
converts("imblearn.BalancedBaggingClassifier", "imblearn.EasyEnsembleClassifier", table=True)(bagging_classifier)
converts("imblearn.RUSBoostClassifier")(adaboost_classifier)


@converts("imblearn.Pipeline", table=True)
def pipeline(model: Any, X: Table) -> Outputs:
    steps = [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    for step in steps:
        if not hasattr(step, "fit_resample"):
            X = convert(step, X)["transform"]
    last = model.steps[-1][1]
    return {"transform": X} if last in (None, "passthrough") else convert(last, X)
