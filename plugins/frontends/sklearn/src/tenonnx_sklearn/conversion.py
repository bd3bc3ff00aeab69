"""Conversion of fitted estimators by rules."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
from scipy.sparse import issparse

import tenonnx_standard as ops
from tenonnx.extend import NotRepresentable, Value
from tenonnx.extend.formats import loaded
from tenonnx_frontends import added_rule
from tenonnx_sklearn.sparsity import note_sparse
from tenonnx_sklearn.tables import Table, as_matrix, as_table

#: Outputs of an estimator by method. Rules return all outputs that they support: unused ones are pruned, and expensive
#: ones are functions that are called on demand. A transformer returns a ``Table`` if its columns have several types;
#: the probabilities of several outputs are a list.
Outputs = dict[str, Any]
Rule = Callable[[Any, Any], Outputs]

#: Entry-point group of modules, named by the Python package of their estimators; importing one registers its rules.
GROUP = "tenonnx.estimators"

_rules: dict[str, Rule] = {}
_refused: dict[str, str] = {}


def converts(*names: str, table: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for estimators, named by Python package and class, ``"sklearn.Ridge"``.

    A rule is a function of the fitted estimator and a matrix ``float[rows, features]`` that returns values by method:
    ``{"predict": ..., "predict_proba": ...}``. It raises ``NotRepresentable`` for an unsupported setting. Subclasses
    need rules of their own, since they may compute something else. With ``table`` it gets a ``Table`` of columns with
    their own types, including strings.
    """

    def register(rule: Rule) -> Rule:
        taken = as_table if table else as_matrix
        added = added_rule(lambda model, X: rule(model, taken(X)), names, _rules)
        _rules.update(dict.fromkeys(names, added))
        return rule

    return register


def refuses(why: str, *names: str) -> None:
    """Register the reason why estimators cannot have a rule."""
    _refused.update(dict.fromkeys(names, why))


def refuse_without_rule(model: Any) -> None:
    """Raise ``NotRepresentable`` for an estimator that cannot have a rule, also as the first step of a pipeline."""
    while getattr(model, "steps", None):
        model = model.steps[0][1]
    _import_rules(name_of(model).partition(".")[0])
    if name_of(model) in _refused:
        raise refusal(model, _refused[name_of(model)])


def convert(model: Any, X: Value | Table) -> Outputs:
    """Convert ``model`` on the rows of ``X``. Raises ``NotRepresentable`` if it has no rule."""
    name = name_of(model)
    _import_rules(name.partition(".")[0])
    rule = _rules.get(name)
    if name in _refused:
        raise refusal(model, _refused[name])
    if rule is None:
        raise NotRepresentable(
            "an estimator has no rule",
            given=name,
            do=f'write one: @tenonnx_sklearn.converts("{name}") above a function of the estimator and its rows'
            f'{_by_base(model)}; see "tenonnx.estimators" in docs/how-to/sklearn.md',
        )
    result = rule(_widened(model), X)
    if isinstance(result.get("transform"), Value | Table):
        note_sparse(model, X, result["transform"])
    if "predict_proba" in result and "predict_log_proba" not in result:
        result["predict_log_proba"] = lambda: _logarithms(called(result["predict_proba"]))
    return result


def _by_base(model: Any) -> str:
    """Advice for a subclass that computes the same as its base class."""
    names = [f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(model).__mro__[1:]]
    base = next((name for name in names if name in _rules), None)
    return "" if base is None else f", or give that of {base} the name as well, where both compute the same"


def _logarithms(proba: Any) -> Any:
    return [ops.log(each) for each in proba] if isinstance(proba, list) else ops.log(proba)


def _widened(table: Any, within: frozenset[type] = frozenset()) -> Any:
    """Attributes of an estimator of scikit-learn, converted to dense arrays and float64.

    Then rules that compute in float64 are accurate even if the estimator was fitted on float32. Nodes of trees and
    linked lists are unchanged.
    """
    if issparse(table):
        return table.toarray().astype(np.float64)
    if isinstance(table, np.ndarray):
        return table.astype(np.float64) if table.dtype == np.float32 else table
    if isinstance(table, list) and table and all(isinstance(each, np.ndarray) for each in table):
        wide = [_widened(each) for each in table]
        return table if all(a is b for a, b in zip(table, wide, strict=True)) else wide
    kind = type(table)
    if not kind.__module__.startswith("sklearn.") or not hasattr(table, "__dict__") or kind in within:
        return table
    around = within | {kind}
    parts = {name: each for name, each in vars(table).items() if name != "_idf_diag"}  # words x words, before 1.5
    changed = {name: wide for name, each in parts.items() if (wide := _widened(each, around)) is not each}
    if not changed:
        return table
    copied = copy(table)
    vars(copied).update(changed)
    return copied


def output(model: Any, X: Value | Table, *methods: str) -> Any:
    """Output of the first of these methods that its rule supports. Raises ``NotRepresentable`` if there is none."""
    found = convert(model, X)
    for method in methods:
        if method in found:
            return called(found[method])
    raise refusal(model, f"its rule supports {', '.join(found)}, and not {' or '.join(methods)}")


def called(found: Any) -> Any:
    """Result of a rule for a method; lazy results are computed."""
    return found() if callable(found) else found


def refusal(model: Any, why: str) -> NotRepresentable:
    """The error for a setting that a rule does not support."""
    return NotRepresentable(f"{name_of(model)} has no form in ONNX", given=why)


def name_of(model: Any) -> str:
    """The name under which the rule of an estimator is registered."""
    return f"{type(model).__module__.partition('.')[0]}.{type(model).__qualname__}"


def known() -> list[str]:
    """The names of all estimators with rules."""
    _import_rules("")
    return sorted(_rules)


@cache
def _import_rules(package: str) -> None:
    from tenonnx_sklearn import rules

    for module in iter_modules(rules.__path__, f"{rules.__name__}."):
        import_module(module.name)
    for _ in loaded(GROUP, package):
        pass
