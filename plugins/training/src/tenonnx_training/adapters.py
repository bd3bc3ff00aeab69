"""Low-rank adapters (Hu et al. 2021): a trainable product of two thin matrices, added to a frozen weight."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, InvalidModel, Node, Value, constant
from tenonnx.extend.formats import Tensor, read_tensors, write_tensors
from tenonnx.extend.transforms import Builder, bind, check_made_alike, copy_graph, interpreting
from tenonnx_standard.regular_expressions import RegularExpression, compiled
from tenonnx_training.modes import switch_to_inference
from tenonnx_training.parameters import is_adapter, matches, names_of
from tenonnx_training.weight_readers import source_of

Array = np.ndarray[Any, Any]

#: Ops whose weight, the second input, can have adapters.
_KINDS = (("ai.onnx", "MatMul"), ("ai.onnx", "Gemm"), ("ai.onnx", "Conv"), ("com.microsoft", "MatMulNBits"))

#: Ops that only change the layout or type of a weight.
_FORMS = (ops.transpose, ops.reshape, ops.cast, ops.unsqueeze, ops.squeeze)

#: Attributes that determine the adapters of all ops but Conv, which is applied with all of its attributes.
_NEEDED = ("alpha", "transB", "K", "N")

#: Prefix of names in files of PEFT.
_PREFIX = "base_model.model."

#: Metadata key of the scale in our files; name of PEFT's configuration file, which has it for theirs.
_SCALE, _CONFIG = "tenonnx.lora.scale", "adapter_config.json"

#: Metadata key of a mapping: by module, the names of the parameters that were merged into its weight.
_MADE_OF = "tenonnx.lora.made_of"

#: Element types accepted in adapter files.
_STORED = {"F32": DType.float32, "F16": DType.float16, "BF16": DType.bfloat16}


@dataclass(frozen=True)
class _Place:
    """A node with a weight to adapt, and the ``module`` after which its adapters are named.

    ``names`` are the names of the weight and the module paths of its readers. ``is_turned``: the node reads the weight
    transposed with respect to the shapes of the adapters.
    """

    node: Node
    weight: Value
    module: str
    attributes: Mapping[str, Any]
    names: tuple[list[str], list[str]]
    is_turned: bool = False

    def shapes(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of A and B in PEFT's layout: A maps the inputs to ``rank``, B maps ``rank`` to the outputs."""
        if "K" in self.attributes:
            return (rank, self.attributes["K"]), (self.attributes["N"], rank)
        shape = [dim for dim in self.weight.shape if isinstance(dim, int)]
        if self.node.op is ops.conv:
            return (rank, *shape[1:]), (shape[0], rank, *[1] * (len(shape) - 2))
        inputs, outputs = reversed(shape) if self.attributes.get("transB") else shape
        return (rank, inputs), (outputs, rank)

    def product(self, down: Array, up: Array) -> Array:
        """The addend of the weight: the product of B and A."""
        whole: Array = np.einsum("or,ri...->oi...", up.reshape(up.shape[:2]), down)
        if self.node.op is ops.conv:
            return whole
        return whole if self.attributes.get("transB") else whole.T

    def apply(self, x: Value, down: Value, up: Value, scale: float) -> Value:
        if self.node.op is ops.conv:
            added = ops.conv(ops.conv(x, down, **self.attributes), up)
        else:
            first, last = (up, down) if self.is_turned else (ops.transpose(each, perm=[1, 0]) for each in (down, up))
            added = x @ first @ last
            scale *= float(self.attributes.get("alpha", 1.0))
        return added if scale == 1 else added * scale  # type: ignore[no-any-return]


def lora(
    graph: Graph,
    patterns: str | Sequence[str],
    *,
    rank: int | Mapping[str, int] = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    name: str = "default",
    seed: int = 0,
) -> Graph:
    """Add adapters to the weights of MatMul, Gemm, Conv and MatMulNBits that match ``patterns``, in a copy of
    ``graph``.

    Patterns are as in ``trainable``. ``rank`` is a number, or a mapping of patterns to numbers; the first match counts.
    The product of a pair is multiplied by ``alpha / rank``, by default 1. A is drawn by ``seed`` and B is zero, so that
    outputs do not change at first. ``dropout`` is the share of the inputs of a pair that is dropped in training. A
    weight that several nodes read has one pair for all of them. ``fit`` trains only the adapters by default. A graph
    may have several adapters, distinguished by ``name``. Raises ``InvalidCall`` where a pattern matches nothing.
    """
    ranks = rank if isinstance(rank, Mapping) else {"*": rank}
    if not ranks or not all(isinstance(each, int) and each > 0 for each in ranks.values()):
        raise InvalidCall("the rank of adapters is not a positive integer", given=repr(rank))
    if not (isinstance(dropout, int | float) and 0 <= dropout < 1):
        raise InvalidCall("the dropout of adapters is not between 0 and 1", given=repr(dropout))
    random, contents, scales, used = np.random.default_rng(seed), {}, {}, set()
    chosen = [patterns] if isinstance(patterns, str) else list(patterns)
    for module, places in _modules(copy_graph(graph).infer(), chosen).items():
        pattern = next((each for each in ranks if each == "*" or _matches(places, [each])), None)
        if pattern is None:
            raise InvalidCall(
                f'no pattern of rank matches "{module}"', given=", ".join(ranks), do='rank={..., "*": 8} for all others'
            )
        used.add(pattern)
        scales[module] = 1.0 if alpha is None else alpha / ranks[pattern]
        down, up = places[0].shapes(ranks[pattern])
        bound = 1 / math.sqrt(math.prod(down[1:]))
        contents[f"{module}.lora_A"] = random.uniform(-bound, bound, down).astype(np.float32)
        contents[f"{module}.lora_B"] = np.zeros(up, np.float32)
    if unused := [pattern for pattern in ranks if pattern not in used and pattern != "*"]:
        raise InvalidCall(f'the pattern of rank "{unused[0]}" matches no adapted weight', available=", ".join(scales))
    one = set(scales.values())
    return with_adapters(graph, contents, scale=one.pop() if len(one) == 1 else scales, dropout=dropout, name=name)


def with_adapters(
    graph: Graph,
    contents: Mapping[str, Array],
    *,
    scale: float | Mapping[str, float] = 1.0,
    dropout: float = 0.0,
    name: str = "default",
) -> Graph:
    """Add adapters of these ``contents`` to a copy of ``graph``, keyed ``{module}.lora_A`` and ``{module}.lora_B``.

    ``scale`` is one number for all modules, or one by module.
    """
    scale_text = json.dumps(scale if isinstance(scale, int | float) else dict(scale))
    copy = copy_graph(graph).infer()
    copy.training_state = None  # it is that of other parameters
    modules = {key.rpartition(".lora_")[0] for key in contents}
    found = _modules(copy)
    missing = sorted(modules - found.keys())
    if missing:
        raise InvalidCall(
            "the adapters match no module of the graph",
            given=", ".join(missing[:5]),
            available=", ".join(list(found)[:50]),
        )
    for module in sorted(modules, key=list(found).index):
        down, up = (copy.variable(f"{module}.lora_{k}.{name}.weight", contents[f"{module}.lora_{k}"]) for k in "AB")
        for place in found[module]:
            turned = replace(place, is_turned=_is_turned(found[module][0], place))
            _insert(copy, turned, down, up, _scale_of(scale_text, module), dropout)
    copy.metadata[f"tenonnx.lora.{name}"] = scale_text
    return copy


def _scale_of(text: str, module: str) -> float:
    """Scale of a module from the metadata, which hold one number for all or one by module."""
    try:
        found = json.loads(text)
        return float(found[module] if isinstance(found, dict) else found)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise InvalidCall(f'unknown scale of the adapter of "{module}"', given=text[:80], do="scale=...") from error


def _insert(graph: Graph, place: _Place, down: Value, up: Value, scale: float, dropout: float) -> None:
    """Add the output of the adapters to the output of a node, for all readers of that output."""
    node, start = place.node, len(graph.nodes)
    (output,) = (v for v in node.outputs if v is not None)
    readers, shown = graph.uses().get(output, []), [k for k, v in enumerate(graph.outputs) if v is output]
    with interpreting(Builder(graph, prefix=f"{place.module}/lora")):
        x = node.inputs[0]
        assert x is not None
        if dropout:
            x = ops.dropout(x, constant(np.float32(dropout)), _outputs=1)
        whole = output + place.apply(x, down, up, scale)
    added, position = graph.nodes[start:], graph.nodes.index(node) + 1
    graph.nodes[start:] = []
    graph.nodes[position:position] = added
    for reader in readers:
        reader._replace_fields(
            inputs=tuple(whole if v is output else v for v in reader.inputs),
            captures=tuple(whole if v is output else v for v in reader.captures),
        )
        reader.origin = None
    for k in shown:
        name = output.name
        graph.rename(output, graph.unique_name(f"{name}/base") + "_")
        graph.rename(whole, name)
        graph.outputs[k] = whole
        node.origin = None


def adapters(graph: Graph, name: str = "default") -> dict[str, Array]:
    """Contents of the adapters of that name, keyed ``{module}.lora_A`` and ``{module}.lora_B``."""
    result = {}
    for value in graph.variables:
        if is_adapter(value.name) and value.name.endswith(f".{name}.weight") and value.data is not None:
            result[value.name.removesuffix(f".{name}.weight")] = value.data.array()
    if not result:
        raise InvalidCall(f'the graph has no adapters named "{name}"', do="tt.lora(graph, patterns)")
    return result


def merged(graph: Graph, adapted: Graph, name: str = "default", *, keep_training_form: bool = False) -> Graph:
    """Merge the adapters of ``adapted`` into the weights of a copy of ``graph``; only initializers differ.

    A graph that was exported in training mode is switched to inference mode, unless ``keep_training_form``. Raises
    ``InvalidCall`` for an adapter of a weight that is not a float initializer, such as a quantized one, or whose weight
    was merged with other parameters in only one of the two graphs.
    """
    copy, pairs = copy_graph(graph).infer(), adapters(adapted, name)
    modules = {module: places for module, places in _modules(copy).items() if f"{module}.lora_A" in pairs}
    origins = {module: _origin(places[0].weight) for module, places in modules.items()}
    check_made_alike(copy, adapted, [weight.name for weight, _ in origins.values()])
    scales = adapted.metadata[f"tenonnx.lora.{name}"]
    changed: dict[str, Array] = {}
    for module, places in modules.items():
        weight, undone = origins[module]
        if others := _readers(copy, weight) - {place.node for place in places}:
            raise InvalidCall(
                f'cannot merge adapters into "{weight.name}": other nodes read it, too',
                given=", ".join(repr(node) for node in others),
                do="export the graph with its adapters beside it",
            )
        if weight not in copy.variables or weight.data is None or not weight.tensor.dtype.is_float:
            raise InvalidCall(
                "cannot merge adapters: the weight is not a floating-point initializer",
                given=repr(weight),
                do="export the graph with its adapters beside it",
            )
        added = undone(places[0].product(pairs[f"{module}.lora_A"], pairs[f"{module}.lora_B"]))
        added = added * _scale_of(scales, module)
        before = weight.data.array()
        changed[weight.name] = (before + added).astype(before.dtype)
    copy.assign(changed)
    if not keep_training_form:
        switch_to_inference(copy)
    return copy


def _origin(value: Value) -> tuple[Value, Callable[[Array], Array]]:
    """The initializer behind a transposed, reshaped or cast weight, and a function that maps an addend back to it."""
    steps: list[Callable[[Array], Array]] = []
    while (value := source_of(value)).producer is not None:
        node, (_, attributes) = value.producer, bind(value.producer)
        before = node.inputs[0]
        if before is None or node.op not in _FORMS:
            break
        if node.op is ops.transpose:
            order = attributes.get("perm") or list(range(before.ndim))[::-1]
            steps.append(partial(np.transpose, axes=np.argsort(order).tolist()))
        elif node.op is not ops.cast:
            steps.append(partial(np.reshape, shape=tuple(dim for dim in before.shape if isinstance(dim, int))))
        value = before
    return value, lambda added: reduce(lambda array, step: step(array), steps, added)


def _readers(graph: Graph, weight: Value) -> set[Node]:
    """The nodes that read a weight, directly or through layout and type changes."""
    result, uses, forms = set(), graph.uses(), [weight]
    for form in forms:
        for node in uses.get(form, ()):
            outputs = [value for value in node.outputs if value is not None]
            if node.op in _FORMS or any(source_of(value) is not value for value in outputs):
                forms.extend(outputs)
            else:
                result.add(node)
    return result


def save_adapters(graph: Graph, path: str | os.PathLike[str], name: str = "default") -> None:
    """Write only the adapters to a safetensors file, under PEFT's names."""
    tensors = [
        Tensor(f"{_PREFIX}{key}.weight", "F32", array.shape, array.nbytes, np.ascontiguousarray(array).tobytes)
        for key, array in adapters(graph, name).items()
    ]
    metadata = {_SCALE: graph.metadata[f"tenonnx.lora.{name}"]}
    if made_of := _made_of(graph):
        metadata[_MADE_OF] = json.dumps(made_of)
    write_tensors(path, tensors, metadata, overwrite=True)


def load_adapters(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    scale: float | Mapping[str, float] | None = None,
    name: str = "default",
) -> Graph:
    """Add the adapters of a file to a copy of ``graph``; ``scale`` defaults to the file's, or PEFT's configuration's.

    Raises ``InvalidCall`` for adapters of other modules, for integer tensors, where the scale is unknown, and for
    adapters whose weight was merged with other parameters when they were tuned but is not here, or the reverse.
    """
    entries, metadata = read_tensors(path, mapped=False)
    contents = {}
    for key, entry in entries.items():
        if entry.dtype not in _STORED:
            raise InvalidCall(
                "the adapters are not floating-point", given=f"{key}: {entry.dtype}", available=", ".join(_STORED)
            )
        array = np.frombuffer(entry.region.view(), _STORED[entry.dtype].numpy).reshape(entry.shape)
        contents[key.removeprefix(_PREFIX).removesuffix(".weight")] = array.astype(np.float32)
    if scale is None:
        config = Path(path).parent / _CONFIG
        modules = {key.rpartition(".lora_")[0] for key in contents}
        scale = (
            {module: _scale_of(metadata[_SCALE], module) for module in modules}
            if _SCALE in metadata
            else _scale_of_peft(config, contents)
        )
    tuned, here = _tuned_on(metadata.get(_MADE_OF, "{}")), _made_of(graph)
    for module in sorted({key.rpartition(".lora_")[0] for key in contents}):
        if tuned.get(module) != here.get(module):
            was, now = (", ".join(each.get(module, ["one parameter"])) for each in (tuned, here))
            raise InvalidCall(
                f'the weight of "{module}" is computed from parameters other than those the adapters were trained with',
                given=f"{was}, and here {now}",
                do="export the module with simplify=False (--no-fold), which keeps each parameter",
            )
    return with_adapters(graph, contents, scale=scale, name=name)


def _tuned_on(text: str) -> dict[str, list[str]]:
    """Parameters of merged weights by module, from metadata. Raises ``InvalidModel``."""
    try:
        return {str(module): list(map(str, names)) for module, names in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        given = f"{type(error).__name__}: {error}"[:200]
        raise InvalidModel(f'the metadata entry "{_MADE_OF}" lists no parameters by module', given=given) from error


def _made_of(graph: Graph) -> dict[str, list[str]]:
    """By module, the parameters that were merged into its weight, where there are several."""
    modules = _modules(copy_graph(graph).infer())
    weights = {module: _origin(places[0].weight)[0] for module, places in modules.items()}
    return {name: list(v.role.made_of) for name, v in weights.items() if v.role is not None and v.role.made_of}


def _scale_of_peft(path: Path, contents: Mapping[str, Array]) -> float | dict[str, float]:
    """The scale in PEFT's configuration: by module where it has patterns of ranks or alphas."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        root = math.sqrt if config.get("use_rslora") else float
        rank, alpha = float(config["r"]), float(config["lora_alpha"])
        if not config.get("rank_pattern") and not config.get("alpha_pattern"):
            return alpha / root(rank)
        result = {}
        for key in (each for each in contents if each.endswith(".lora_A")):
            module, ranked = key.removesuffix(".lora_A"), len(contents[key])
            alphas = (a for p, a in (config.get("alpha_pattern") or {}).items() if _pattern(p).matches(module))
            result[module] = float(next(alphas, alpha)) / root(ranked)
        return result
    except (OSError, ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidCall(
            f"{path} lacks lora_alpha or r, which give the scale of the adapters",
            given=f"{type(error).__name__}: {error}",
            do="scale=alpha / rank",
        ) from error


def _pattern(text: str) -> RegularExpression:
    """A pattern of PEFT's configuration, which matches the end of a module's path at a dot."""
    return compiled("alpha_pattern", rf"(.*\.)?({text})")


def _modules(graph: Graph, patterns: Sequence[str] | None = None) -> dict[str, list[_Place]]:
    """Adaptable nodes by the module of their weight, filtered by ``patterns`` if given.

    Raises ``InvalidCall`` where nothing matches.
    """
    groups: dict[Value, list[_Place]] = {}
    for place in _places(graph):
        groups.setdefault(_origin(place.weight)[0], []).append(place)
    result: dict[str, list[_Place]] = {}
    for places in groups.values():
        module, node = places[0].module, places[0].node
        if module in result:  # of two weights that exporters gave no name and one path
            module = (node.name or places[0].weight.name).strip("/").replace("/", ".")
        result[module] = [replace(place, module=module) for place in places]
    if patterns is None:
        return result
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    for pattern in (*wanted, *unwanted):
        if not any(_matches(places, [pattern]) for places in result.values()):
            raise InvalidCall(
                "no MatMul, Gemm, Conv or MatMulNBits with a fixed weight matches",
                given=pattern,
                available=", ".join([places[0].names[0][0] for places in result.values()][:50]),
            )
    chosen = {name: places for name, places in result.items() if _matches(places, wanted or ["*"])}
    chosen = {name: places for name, places in chosen.items() if not unwanted or not _matches(places, unwanted)}
    if not chosen:
        raise InvalidCall("the adapters match no weight of the graph", given=", ".join(patterns))
    return chosen


def _matches(places: Sequence[_Place], patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the weight or a reader of it; a buffer is matched only by its exact name."""
    source = _origin(places[0].weight)[0]
    if source.role is not None and source.role.kind == "buffer" and source.name not in patterns:
        return False
    nodes = [place.node.name for place in places]
    paths = [*places[0].names[1], *nodes, *(node.strip("/").replace("/", ".") for node in nodes)]
    return matches((places[0].names[0], paths), patterns)


def _is_turned(one: _Place, other: _Place) -> bool:
    """Whether a node reads a weight transposed relative to another. Raises ``InvalidCall`` for other layouts."""
    down, up = one.shapes(1)
    pair = [np.arange(1.0, math.prod(shape) + 1).reshape(shape) ** power for power, shape in enumerate((down, up), 1)]
    wanted = _origin(one.weight)[1](one.product(*pair))
    for turned in (False, True):
        given = [pair[1].T, pair[0].T] if turned else pair
        if other.shapes(1) == tuple(array.shape for array in given):
            found = _origin(other.weight)[1](other.product(*given))
            if found.shape == wanted.shape and np.array_equal(found, wanted):
                return turned
    raise InvalidCall(
        f'the weight of "{one.module}" is read in a way that adapters do not support',
        given=f"{one.node!r}, and {other.node!r}",
        do='leave it out: "!" before its name',
    )


def _places(graph: Graph) -> Iterator[_Place]:
    """The nodes that can be adapted."""
    kinds = {v.name: v.tensor for v in graph.variables}
    names, fixed = names_of(graph, kinds), _fixed(graph)
    for node in graph.nodes:
        if (node.domain, node.op_type) not in _KINDS or len(node.inputs) < 2 or node.inputs[1] is None:
            continue
        weight, (_, attributes) = node.inputs[1], bind(node)
        plain = not attributes.get("transA") and attributes.get("group", 1) == 1
        rank = weight.rank if node.op is ops.conv or "K" in attributes else weight.rank == 2
        if not (weight in fixed and plain and rank) or not all(isinstance(dim, int) for dim in weight.shape):
            continue
        source = fixed[weight]
        own, paths = names.get(source.name, ([source.name], []))
        options = {key: value for key, value in attributes.items() if node.op is ops.conv or key in _NEEDED}
        yield _Place(node, weight, _module(own[0], node), options, (own, paths))


def _fixed(graph: Graph) -> dict[Value, Value]:
    """The values that depend on constants but not on adapters, each with its first variable."""
    variables = set(graph.variables)
    result = {v: v for v in graph.values() if v.producer is None and v.data is not None and not is_adapter(v.name)}
    for node in graph.nodes:
        if all(v in result for v in node.uses):
            readers = [result[v] for v in node.uses if result[v] in variables and v.rank]
            result.update({v: readers[0] if readers else v for v in node.outputs if v is not None})
    return result


def _module(weight: str, node: Node) -> str:
    """PyTorch's name of the layer: that of its weight, or of the node's path where the exporter made the name up."""
    if weight.endswith(".weight"):
        return weight.removesuffix(".weight")
    path = node.name.strip("/").rpartition("/")[0]
    return path.replace("/", ".") if "/" in node.name and path else weight
