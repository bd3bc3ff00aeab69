"""Memory and communication of each device of a mesh, estimated before compilation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh

from tenonnx.extend import Graph, TenonnxError, TensorType
from tenonnx.extend.symbolic import evaluate, symbols_of
from tenonnx.extend.transforms import fix_shapes, opened
from tenonnx_jax.exchanges import GATHERED, REDUCED, Cut, Exchange, Follower
from tenonnx_jax.functions import is_array, planned
from tenonnx_jax.plan import NAMED, NATIVE, SMALL
from tenonnx_jax.sharding import Layouts, Sharding, axes_of, batch_axes, sizes_of
from tenonnx_optimize.simplification import simplify


@dataclass(frozen=True)
class Placed:
    """An array of a graph: its layout and its bytes on each device."""

    name: str
    shape: tuple[int, ...]
    layout: str
    bytes: int


#: Advice where propagation failed.
_SIZES = "give the sizes of inputs that belong together: shapes={...} / --input-shapes"


@dataclass(frozen=True)
class LayoutPlan:
    """Arrays on each device (variables, state, and inputs of known size), and the collectives in a call.

    Collectives are estimated for inputs of ``sizes``; a compiler may use others.
    """

    devices: int
    arrays: tuple[Placed, ...]
    bytes_in_all: int
    exchanges: tuple[Exchange, ...]
    sizes: Mapping[str, tuple[int, ...]]
    unknown: str = ""

    @property
    def bytes_per_device(self) -> int:
        return sum(each.bytes for each in self.arrays)

    @property
    def gathered(self) -> int:
        """Bytes on each device from all-gathers of other devices' parts, in one call."""
        return sum(each.bytes for each in self.exchanges if each.kind == GATHERED)

    @property
    def reduced(self) -> int:
        """Bytes on each device that are reduced over devices, in one call."""
        return sum(each.bytes for each in self.exchanges if each.kind == REDUCED)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "devices": self.devices,
            "bytes_per_device": self.bytes_per_device,
            "bytes_in_all": self.bytes_in_all,
            "gathered": self.gathered,
            "reduced": self.reduced,
            "arrays": [asdict(each) for each in self.arrays],
            "exchanges": [asdict(each) for each in self.exchanges],
            "inputs": {name: list(shape) for name, shape in self.sizes.items()},
            "unknown": self.unknown or None,
        }

    def __str__(self) -> str:
        lines = [f"{each.bytes:>14,}  {each.name} {list(each.shape)} {each.layout}" for each in self.arrays]
        lines.append(
            f"{self.bytes_per_device:>14,}  bytes on each of {self.devices} devices, {self.bytes_in_all:,} on one alone"
        )
        if self.unknown:
            return "\n".join([*lines, f"what is exchanged is not known: {self.unknown}", _SIZES])
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in self.sizes.items())
        lines.append(f"exchanged in a call{f' with {shapes}' if shapes else ''}, bytes on each device:")
        for each in self.exchanges:
            lines.append(f"{each.bytes:>14,}  {each.kind} over {', '.join(each.axes)}: {each.name_stack}")
        lines += [f"{self.gathered:>14,}  gathered", f"{self.reduced:>14,}  reduced"]
        return "\n".join(lines)


def layout_plan(
    graph: Graph,
    mesh: Mesh | AbstractMesh | Mapping[str, int] | None = None,
    sharding: Sharding | None = None,
    *,
    devices: int | None = None,
    state: Mapping[str, str] | None = None,
    shapes: Mapping[str, tuple[int | None, ...]] | None = None,
) -> LayoutPlan:
    """Layout of the arrays of ``graph`` on a mesh, which may be hypothetical, and the collectives in a call.

    ``mesh``, ``sharding`` and ``devices`` are as in the backend. ``state`` maps inputs to the outputs that replace
    them, by default according to the metadata of an exported step. ``shapes`` are those of inputs, where open sizes
    default to the number of devices. Raises ``InvalidCall`` where a variable cannot be split evenly, and for patterns
    without a match.
    """
    if mesh is None or isinstance(mesh, Mapping):
        sizes = sizes_of(mesh, devices)
        over: Any = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    else:
        over = mesh
    kept = _state_of(graph) if state is None else dict(state)
    layouts = Layouts(over, sharding, batch_axes(graph, kept))
    layouts.check(v.name for v in (*graph.all_inputs, *graph.variables))
    number = math.prod(over.shape.values())
    fed = {v.name: _sized(v.type, (shapes or {}).get(v.name), number) for v in graph.all_inputs if v.data is None}
    known = {name: shape for name, shape in fed.items() if shape is not None}
    found, in_all = [], 0
    for value in dict.fromkeys((*graph.variables, *graph.all_inputs)):
        if not isinstance(value.type, TensorType) or (value.data is None and value.name not in known):
            continue
        shape = known.get(value.name) or tuple(int(n) for n in value.shape)  # type: ignore[arg-type]
        layout = layouts.of(value.name, shape, exact=value.data is not None)
        size = math.ceil(math.prod(shape) * value.dtype.bits / 8)
        parts = math.prod(layouts.parts(each) for each in layout.spec)
        axes_text = ",".join("+".join(axes_of(each)) or "-" for each in layout.spec)
        found.append(Placed(value.name, shape, axes_text if parts > 1 else "everywhere", size // parts))
        in_all += size
    exchanges, unknown = _exchanged(graph, layouts, known, kept)
    return LayoutPlan(number, tuple(found), in_all, exchanges, known, unknown)


def _state_of(graph: Graph) -> dict[str, str]:
    """State of an exported step, from its metadata."""
    try:
        result = json.loads(graph.metadata.get("tenonnx.state", "{}"))
    except (ValueError, RecursionError):
        return {}
    is_state = isinstance(result, dict) and all(isinstance(output, str) for output in result.values())
    return result if is_state else {}


def _sized(kind: Any, given: tuple[int | None, ...] | None, number: int) -> tuple[int, ...] | None:
    """The static shape of an input; None for anything but an array of known rank."""
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype not in NATIVE:
        return None
    wanted = given or (None,) * len(kind.shape)
    return tuple(
        n if isinstance(n, int) else 1 if dim is None else evaluate(dim, dict.fromkeys(symbols_of(dim), number))
        for dim, n in zip(kind.shape, wanted, strict=True)
    )


def _exchanged(
    graph: Graph, layouts: Layouts, fed: Mapping[str, tuple[int, ...]], state: Mapping[str, str]
) -> tuple[tuple[Exchange, ...], str]:
    """Collectives in a call, or the reason why they are unknown."""
    fed_or_kept = {v.name for v in graph.all_inputs}
    weights = [v for v in graph.variables if v.data is not None and is_array(v)]
    free = [v.name for v in weights if v.name in fed_or_kept or math.prod(v.shape) > SMALL]  # type: ignore[arg-type]
    try:
        small = simplify(fix_shapes(opened(graph, free), dict(fed)))  # with static shapes
        with jax.enable_x64(True):
            plan = planned(small, [name for name in free if name in {v.name for v in small.variables}])
            structures = [
                jax.ShapeDtypeStruct(fed.get(v.name) or tuple(v.shape), v.dtype.numpy)  # type: ignore[arg-type]
                for v in plan.inputs
            ]
            token = NAMED.set(True)
            try:
                traced = jax.make_jaxpr(lambda *weights: plan(weights))(*structures)
            finally:
                NAMED.reset(token)
    except (TenonnxError, KeyError, TypeError, AttributeError) as error:
        return (), str(error).splitlines()[0]
    follower = Follower(layouts.mesh.shape)
    cuts = [_cut(layouts, v.name, each.shape) for v, each in zip(plan.inputs, structures, strict=True)]
    left = {output: name for name, output in state.items()}
    outputs = follower(traced.jaxpr, cuts)
    for value, variable, cut in zip(plan.graph.outputs, traced.jaxpr.outvars, outputs, strict=True):
        if value.name in left:
            follower.name_stack = f'output "{value.name}"'
            follower.laid(variable.aval, cut, _cut(layouts, left[value.name], variable.aval.shape))
    return tuple(follower.collectives), ""


def _cut(layouts: Layouts, name: str, shape: tuple[int, ...]) -> Cut:
    spec = layouts.of(name, shape).spec
    return tuple(axes_of(each) for each in spec) + ((),) * (len(shape) - len(spec))
