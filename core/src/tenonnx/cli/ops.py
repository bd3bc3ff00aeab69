"""``tenonnx ops``: the ops that are installed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from tenonnx.cli.options import json_option
from tenonnx.cli.output import complain, plural, say, say_json, say_table

if TYPE_CHECKING:
    from tenonnx.op.op import Op
    from tenonnx.registry.registry import Registry


@click.command("ops")
@click.argument("name", required=False)
@click.option("--domain", metavar="DOMAIN", help="Only ops of this domain, such as com.microsoft.")
@json_option
def command(name: str | None, domain: str | None, as_json: bool) -> None:
    """List the installed ops, or show the meanings of one, as Softmax or com.microsoft::Gelu.

    A meaning holds for a range of opset versions. It has a body, written in simpler ops, or is a primitive; it may have
    a numpy rule, which agrees with the body, and a gradient of its own.
    """
    from tenonnx.cli.describe import full_name
    from tenonnx.registry.registry import default_registry

    registry = default_registry()
    wanted_domain, _, wanted = (name or "").rpartition("::")
    found = [op for op in registry.ops(wanted_domain or domain) if not wanted or op.name == wanted]
    for failure in registry.failures.values():
        complain(f"left out: {failure}")
    if not found:
        _refuse(registry, name, wanted_domain or domain)
    if as_json:
        say_json([_to_json(op, registry) for op in found])
    elif wanted:
        for op in found:
            _say_meaning(op, registry)
    else:
        rows = [
            (
                full_name(op.domain, op.name),
                versions(op),
                _yes(has_numpy(op)),
                _body(op),
                _gradient(op),
                registry.source(op),
            )
            for op in found
        ]
        say_table(rows, ("op", "versions", "numpy", "body", "gradient", "provided by"))
        say(f"{plural(len({(op.domain, op.name) for op in found}), 'op')}, {plural(len(found), 'meaning')}")


def _refuse(registry: Registry, name: str | None, domain: str | None) -> None:
    """Raise ``InvalidCall`` naming what there is instead."""
    import difflib

    from tenonnx.errors import InvalidCall

    known = {op.name for op in registry.ops(domain)}
    near = difflib.get_close_matches((name or "").rpartition("::")[2], known, 3)
    wanted = f'op "{name}"' if name else f'op of domain "{domain}"'
    available = (
        ", ".join(near) if near else ", ".join(registry.domains()) or "no ops: no package that defines ops is installed"
    )
    package = registry.provider(domain or "ai.onnx", (name or "").rpartition("::")[2])
    raise InvalidCall(
        f"no installed package provides the {wanted}",
        available=available,
        do=f"pip install {package}" if package and not known else "",
    )


def versions(op: Op) -> str:
    return (
        f"{op.since} and newer"
        if op.before is None
        else f"{op.since} to {op.before - 1}"
        if op.before - 1 > op.since
        else f"{op.since}"
    )


def has_numpy(op: Op) -> bool:
    from tenonnx.op.rules import find_rule

    return find_rule(op, "numpy") is not None


def has_gradient(op: Op) -> bool:
    from tenonnx.op.rules import find_rule

    return find_rule(op, "vjp") is not None


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _body(op: Op) -> str:
    return "primitive" if op.primitive else "yes"


def _gradient(op: Op) -> str:
    return "yes" if has_gradient(op) else "no" if op.primitive else "of its body"


def _to_json(op: Op, registry: Registry) -> dict[str, Any]:
    return {
        "domain": op.domain,
        "name": op.name,
        "since": op.since,
        "before": op.before,
        "spelled_differently_before": sorted({step.before for step in op.respellings}),
        "function": op.__name__,
        "doc": inspect.cleandoc(op.__doc__ or ""),
        "inputs": [{"name": p.name, "optional": p.optional, "variadic": p.variadic} for p in op.signature.inputs],
        "attributes": sorted(op.signature.attributes),
        "primitive": op.primitive,
        "numpy": has_numpy(op),
        "gradient": has_gradient(op),
        "package": registry.source(op),
    }


def _say_meaning(op: Op, registry: Registry) -> None:
    from tenonnx.cli.describe import full_name

    say(f"{full_name(op.domain, op.name)}, versions {versions(op)}, from {registry.source(op)}")
    doc = inspect.cleandoc(op.__doc__ or "no description")
    say("\n".join(f"  {line}" for line in doc.splitlines()))
    rows = [("inputs", _inputs(op)), ("attributes", _attributes(op))]
    rows += [("numpy", _yes(has_numpy(op))), ("body", _body(op)), ("gradient", _gradient(op))]
    spelled = sorted({step.before for step in op.respellings})
    if spelled:
        rows.append(("spelling", f"another one before version {', '.join(map(str, spelled))}"))
    say_table(rows)


def _inputs(op: Op) -> str:
    return (
        ", ".join(
            ("*" if p.variadic else "") + p.name + ("?" if p.optional and not p.variadic else "")
            for p in op.signature.inputs
        )
        or "none"
    )


def _attributes(op: Op) -> str:
    from tenonnx.op.signature import REQUIRED

    return (
        ", ".join(
            name if default is REQUIRED else f"{name}={default!r}" for name, default in op.signature.attributes.items()
        )
        or "none"
    )
