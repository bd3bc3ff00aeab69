"""Verification against the estimator itself: labels are equal, numbers are near."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tenonnx import VerificationFailed
from tenonnx.extend import Graph
from tenonnx.extend.checks import OutputDifference, Tolerance, Verification, compare, structure_problems

METHODS = {"label": "predict", "variable": "predict", "probabilities": "predict_proba"}


def verify_against(
    model: Any, examples: tuple[Any, ...], graph: Graph, atol: float | None = None, rtol: float | None = None
) -> Verification:
    """Compare ``graph`` with ``model`` on the examples, or on rows that are made up, and on no rows at all."""
    found = Verification("scikit-learn")
    found.problems += [f"onnx.checker: {problem}" for problem in structure_problems(graph)]
    if found.problems:
        return found
    program = graph.compile()
    dtype = graph.inputs[0].dtype.numpy
    made = [np.asarray(examples[0], dtype)] if examples else [made_up(model).astype(dtype)]
    near = Tolerance(1e-4 if atol is None else atol, 1e-4 if rtol is None else rtol, "sums in another order")
    if dtype is np.float64:
        near = Tolerance(1e-7 if atol is None else atol, 1e-7 if rtol is None else rtol, "sums in another order")
    for rows in made:
        feeds = feeds_of(graph, rows)
        try:
            expected = {name: expected_of(model, METHODS.get(name, name), rows) for name in map(_name, graph.outputs)}
        except Exception as error:
            found.notes.append(f"not compared: the estimator does not take such rows: {type(error).__name__}: {error}")
            continue
        actual = program(feeds)
        for name, array in expected.items():
            result = compare(actual[name], array.astype(actual[name].dtype), tolerance=near)
            found.outputs.append(OutputDifference(name, f"{program.backend}, batch={len(rows)}", result))
        empty = program(feeds_of(graph, rows[:0]))
        found.problems += [f'"{name}" of no rows has {len(array)}' for name, array in empty.items() if len(array)]
    return found


def refuse_difference(found: Verification) -> None:
    """Raise ``VerificationFailed`` where the graph and the estimator differ."""
    bad = [*found.problems, *(f'"{d.name}": {d.difference.reason}' for d in found.outputs if not d.equal)]
    if bad:
        raise VerificationFailed("the graph must compute what the estimator does", given="; ".join(bad)[:600])


def expected_of(model: Any, method: str, rows: Any) -> Any:
    """What a method of the estimator gives, as a graph would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = getattr(model, method)(rows)
        except ValueError as error:  # KMeans fitted on float64 takes no float32
            if "Buffer dtype mismatch" not in str(error):
                raise
            found = getattr(model, method)(rows.astype(np.float64))
    found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    return found.astype(object) if found.dtype.kind in "US" else found


def feeds_of(graph: Graph, rows: Any) -> dict[str, Any]:
    """Rows for one matrix, or for an input for each column."""
    if len(graph.inputs) == 1:
        return {graph.inputs[0].name: rows}
    return {value.name: rows[:, k : k + 1] for k, value in enumerate(graph.inputs)}


def made_up(model: Any) -> Any:
    """100 rows about the numbers that the estimator saw, as far as it tells."""
    generator = np.random.default_rng(0)
    features = getattr(model, "n_features_in_", 1)
    low, high = getattr(model, "data_min_", -2.0), getattr(model, "data_max_", 2.0)
    return generator.uniform(low, high, (100, features))


def _name(value: Any) -> str:
    return str(value.name)
