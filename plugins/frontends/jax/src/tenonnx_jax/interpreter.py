"""Interpreter of jaxprs: each equation becomes calls of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from tenonnx.extend import InvalidCall, NotRepresentable, TenonnxError, Value, constant, static
from tenonnx_jax import lines
from tenonnx_jax.dims import Sizes, is_static
from tenonnx_jax.rules import MOVING, OF_PARTS, RULES
from tenonnx_jax.types import Held, Parts, dtype_of, is_complex, is_key, parts_of

#: Maximum number of elements of a result for constant folding by JAX, and for results that only repeat elements.
_KNOWN, _REPEATED = 1 << 22, 1 << 10

#: Primitives whose results are much larger than their operands.
_REPEATING = frozenset({"broadcast_in_dim", "iota", "tile"})

#: Primitives that call Python at run time.
_CALLBACKS = frozenset({"pure_callback", "io_callback", "debug_callback", "outside_call", "python_callback"})

#: Primitives that call another jaxpr, by the parameter with that jaxpr.
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "xla_call": "call_jaxpr",
    "custom_lin": "call_jaxpr",
    "run_state": "jaxpr",
}


class Equation:
    """An equation of a jaxpr for its rule: operands, results, and known sizes."""

    def __init__(self, equation: Any, interpreter: Interpreter, origins: Mapping[Any, Any]) -> None:
        self.invars, self._origins = equation.invars, origins
        self.name: str = equation.primitive.name
        self.params: dict[str, Any] = equation.params
        self.ins = [var.aval for var in equation.invars]
        self.outs = [var.aval for var in equation.outvars]
        self.out = self.outs[0] if self.outs else None
        self.interpreter = interpreter
        self.sizes = interpreter.sizes

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the first result, in JAX dims."""
        return tuple(self.out.shape)  # type: ignore[union-attr]

    @property
    def dtype(self) -> Any:
        """The element type of the first result, or of its parts."""
        return dtype_of(self.out)

    def origin(self, var: Any) -> Any:
        """The equation that produces an input, or None."""
        return None if isinstance(var, core.Literal) else self._origins.get(var)

    def trace(self, function: Callable[..., Any], *values: Any) -> list[Any]:
        """Trace a JAX function with the equation's inputs, and evaluate it on values."""
        given = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in self.ins]
        return self.run(jax.make_jaxpr(function)(*given), values)

    def run(self, closed: Any, values: Sequence[Any]) -> list[Any]:
        """Evaluate a jaxpr in place of the equation."""
        return self.interpreter.run(closed, [self.interpreter.known(value) for value in values])

    def within(self) -> Interpreter:
        """The interpreter for a subgraph."""
        return Interpreter(self.sizes.nested(), self.interpreter.variables)


class Interpreter:
    """Evaluates jaxprs on values of the graph under construction."""

    def __init__(self, sizes: Sizes, variables: frozenset[Value]) -> None:
        self.sizes, self.variables = sizes, variables

    def known(self, content: Held) -> Held:
        """The contents of a constant, with which JAX can compute; variables, which may be trained, stay values."""
        if isinstance(content, Parts):
            return content.map(self.known)
        if isinstance(content, Value) and content.is_constant and content not in self.variables:
            return np.asarray(static(content))
        return content

    def run(self, closed: Any, values: Sequence[Any]) -> list[Held]:
        """Evaluate a closed jaxpr."""
        return self.evaluate(
            getattr(closed, "jaxpr", closed), [parts_of(c) for c in getattr(closed, "consts", ())], values
        )

    def evaluate(self, jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Held]:
        contents: dict[Any, Held] = dict(zip(jaxpr.constvars, consts, strict=True))
        contents.update(zip(jaxpr.invars, values, strict=True))

        def read(var: Any) -> Held:
            return parts_of(np.asarray(var.val, var.aval.dtype)) if isinstance(var, core.Literal) else contents[var]

        origins: dict[Any, Any] = {}
        for equation in jaxpr.eqns:
            results = self.apply(equation, [read(var) for var in equation.invars], origins)
            origins.update(dict.fromkeys(equation.outvars, equation))
            contents.update(zip(equation.outvars, results, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def apply(self, equation: Any, values: list[Held], origins: Mapping[Any, Any]) -> list[Held]:
        known = self._computed(equation, values)
        if known is not None:
            return known
        name = equation.primitive.name
        if name in _INLINED:
            return self.run(equation.params[_INLINED[name]], values)
        try:
            return self._by_rule(name, Equation(equation, self, origins), values)
        except TenonnxError as error:
            where = lines.of_equation(equation)
            if where and not any(where in note for note in getattr(error, "__notes__", ())):
                error.add_note(f"from {where}")
            raise

    def _by_rule(self, name: str, equation: Equation, values: list[Held]) -> list[Held]:
        compound = any(isinstance(v, Parts) for v in values) or any(map(_has_parts, equation.outs))
        if compound and name in MOVING:
            return self._moved(name, equation, values)
        found = OF_PARTS if compound and name in OF_PARTS else RULES
        if compound and found is RULES and name not in _STRUCTURAL:
            raise NotRepresentable(
                "a primitive of complex numbers or keys has no rule", given=f"{name} of {equation.ins}"
            )
        if name not in found:
            raise NotRepresentable("a primitive has no rule", given=name, do=f'@tenonnx_jax.rule("{name}")')
        given = [as_value(value) for value in values]
        result = found[name](equation, *given, **equation.params)
        single = len(equation.outs) == 1 and not isinstance(result, list)
        return [result] if single else list(result)

    def _moved(self, name: str, equation: Equation, values: list[Held]) -> list[Held]:
        count = next(len(v) for v in values if isinstance(v, Parts))
        results = []
        for k in range(count):
            part = [as_value(v[k] if isinstance(v, Parts) else v) for v in values]
            result = RULES[name](equation, *part, **equation.params)
            results.append(list(result) if isinstance(result, tuple | list) else [result])
        return [Parts(column) for column in zip(*results, strict=True)]

    def _computed(self, equation: Any, values: list[Held]) -> list[Held] | None:
        """The results computed by JAX, if all inputs are known."""
        if not all(isinstance(value, np.ndarray) for value in values) or equation.primitive.name in _CALLBACKS:
            return None
        outs = [var.aval for var in equation.outvars]
        if not outs or not all(is_static(a.shape) and not _has_parts(a) for a in outs) or equation.effects:
            return None
        if any(_has_parts(var.aval) for var in equation.invars) or equation.primitive.name == "dim_as_value":
            return None
        limit = _REPEATED if equation.primitive.name in _REPEATING else _KNOWN
        if sum(int(np.prod(aval.shape)) for aval in outs) > limit:
            return None
        try:
            with jax.ensure_compile_time_eval():
                arrays = [jax.numpy.asarray(v, var.aval.dtype) for v, var in zip(values, equation.invars, strict=True)]
                if hasattr(equation.primitive, "get_bind_params"):
                    functions, params = equation.primitive.get_bind_params(equation.params)
                found = equation.primitive.bind(*functions, *arrays, **params)
        except Exception:  # for instance where a size is unknown
            return None
        return [parts_of(x) for x in (found if equation.primitive.multiple_results else [found])]


#: Rules that handle parts themselves.
_STRUCTURAL = frozenset({"scan", "while", "cond", "random_wrap", "random_unwrap", "custom_linear_solve"})


def _has_parts(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and dtype != jax.dtypes.float0 and (is_key(dtype) or is_complex(dtype))


def as_value(content: Held) -> Any:
    """A known array as a constant of the graph."""
    if isinstance(content, Parts):
        return content.map(as_value)
    return content if isinstance(content, Value) else constant(np.asarray(content))


def check_primitives(closed: Any) -> None:
    """Raise ``NotRepresentable`` naming every primitive without a rule, each with a line of the user's code."""
    missing: dict[str, dict[str, None]] = {}
    for equation in _equations(closed.jaxpr):
        name = equation.primitive.name
        if name not in RULES and name not in OF_PARTS and name not in _INLINED:
            missing.setdefault(name, {})[lines.of_equation(equation)] = None
    if not missing:
        return
    callbacks = sorted(_CALLBACKS & missing.keys())
    raise NotRepresentable(
        "the function has primitives without a rule",
        given="\n".join(
            f"{name}: {where}" if where else name
            for name, found in sorted(missing.items())
            for where in list(found)[:3]
        ),
        do=f"leave out {', '.join(callbacks)}: what calls back to Python has no form in a file"
        if callbacks
        else 'compute it with other functions, or give it a rule: @tenonnx_jax.rule("NAME")',
    )


def _equations(jaxpr: Any) -> Any:
    for equation in jaxpr.eqns:
        yield equation
        name = equation.primitive.name
        parts = [equation.params[_INLINED[name]]] if name in _INLINED else list(equation.params.values())
        if name in RULES and name not in _NESTING:
            continue
        for each in parts:
            for inner in each if isinstance(each, tuple | list) else (each,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


#: Rules that evaluate jaxprs in their parameters.
_NESTING = frozenset({"scan", "while", "cond"})

__all__ = ["Equation", "Interpreter", "InvalidCall", "as_value", "check_primitives"]
