"""Kinds of rules (functions) and traits (flags) that an op may declare."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from tenonnx.errors import InvalidCall, did_you_mean


class Kind(NamedTuple):
    """A kind of rule, for one purpose of consumers.

    ``takes`` describes arguments and result of such a rule. ``variants`` are separate rules, looked up as
    ``kind.variant``.
    """

    name: str
    takes: str
    variants: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The names under which rules of this kind are looked up."""
        return (self.name, *(f"{self.name}.{variant}" for variant in self.variants))


#: Kinds of rules that tenonnx reads; an op's own package declares them.
OURS = (
    Kind("cost", "inputs and attributes; the multiplications and bytes of a call"),
    Kind("normal", "inputs and attributes, in ops; the call in the normal form of fusion, or None"),
    Kind("numpy", "arrays, then attributes; an array or a tuple"),
    Kind("pattern", "a value in normal form; guesses where a call may stand", ("absent",)),
    Kind("residuals", "demand, inputs and attributes, in ops; the outputs and what the vjp gets in place of y"),
    Kind(
        "rewrite",
        "inputs and attributes, in ops; the call in fewer or simpler ops, or None",
        ("alone", "if_fewer", "together"),
    ),
    Kind("specialize", "operands, then attributes; a kernel for such arrays, or None"),
    Kind("symbolic", "object arrays of ints, symbolic dims and None; likewise"),
    Kind("type", "values and attributes; the types of the outputs"),
    Kind("vjp", "g, y, inputs and attributes, in ops; one gradient or None for each input", ("surrogate",)),
)

#: All kinds by name: those of tenonnx and those of packages.
kinds: dict[str, Kind] = {kind.name: kind for kind in OURS}

#: Keys of rules that only an op's own package may declare.
RESERVED = frozenset(key for kind in OURS for key in kind.keys)

#: Traits that an op may have, with their meaning.
TRAITS = {
    "any_version": "True: the newest meaning says what older ones say, so that fusion leaves a call as it is",
    "adjusts": "the inputs that shift or scale what was computed with weights, by name: 'A B'",
    "coarseness": "by what share a runtime may be off by definition, by values of an attribute: "
    "{'accuracy_level': {4: 2**-7}}, which verification allows for",
    "data_movement": "True: calls move, choose or compare elements and compute nothing, so that any wider element type "
    "serves them; or the attribute values for which that holds, {'reduction': ['none', 'max']}",
    "elementwise": "True: each element of a result is computed from those at its place in the inputs, which broadcast",
    "needs_float32": "why half precision leaves the op in float32",
    "on_request": "True: few runtimes have a kernel, so that fusion puts the op only where it is asked for by name",
    "grows_text": "True: texts given are longer than those taken, so that what keeps to limits.memory runs it",
    "declared": "True: runtimes infer other shapes than results have, so that files declare their types",
    "scales": "the inputs that are the scales of quantized values, by name: 'x_scale y_scale'",
    "integer_sums": "True: its integers are sums of quantized values, which gradients of the dequantized values reach; "
    "'inputs': they are where those of an input are",
    "unpacks": "True: dequantizes; where the quantized values are constants, simplifying keeps them",
    "weights": "the inputs in which a model keeps what it learned, by name: 'W B'; constants there are trained",
}


def rule_kind(name: str, takes: str) -> Kind:
    """Register a kind of rule for a new consumer, such as a backend: ``rule_kind("toy", "arrays ...")``.

    Raises ``InvalidCall`` for a name that another kind has, or that is similar to one.
    """
    kind = Kind(name, takes)
    if kinds.get(name, kind) != kind:
        raise InvalidCall(
            "a kind of rule was declared twice, differently", given=name, available=", ".join(sorted(kinds))
        )
    check_kind("a kind of rule", name)
    return kinds.setdefault(name, kind)


def check_kind(title: str, key: str) -> None:
    """Raise ``InvalidCall`` for the name of a rule that is similar to a kind, most likely a typo."""
    near = "" if key in RESERVED or key in kinds else _near(key, tuple(kinds))
    if near:
        raise InvalidCall(
            f"{title}: unknown kind of rule",
            given=f'"{key}"',
            do=near,
            available=f"{', '.join(sorted(kinds))}, or the name of a backend of another package, less like these",
        )


def check_traits(title: str, facts: dict[str, Any]) -> None:
    """Raise ``InvalidCall`` for an unknown trait, and for a value that has no effect."""
    for name, fact in facts.items():
        if name not in TRAITS or not fact:
            raise InvalidCall(
                f"{title}: {'empty' if name in TRAITS else 'unknown'} trait",
                given=f"{name}={fact!r}",
                available="; ".join(f"{trait}: {about}" for trait, about in sorted(TRAITS.items())),
            )


@cache
def _near(key: str, names: tuple[str, ...]) -> str:
    return did_you_mean(key, names)
