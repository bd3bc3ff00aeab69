"""Export: a graph as an ONNX file, at the opset and for the domains that are asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tenonnx.errors import InvalidCall, InvalidModel, NotRepresentable, TenonnxError
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Op
from tenonnx.registry.packages import KEY as PACKAGES
from tenonnx.registry.packages import packages_in_use
from tenonnx.registry.registry import canonical_domain
from tenonnx.transforms.decompose import inline_functions
from tenonnx.transforms.fuse import fuse
from tenonnx.transforms.report import Change, Retargeted, all_kept
from tenonnx.transforms.retarget import retarget_to
from tenonnx.transforms.rewrite import copy_graph
from tenonnx.transforms.target import INTERNAL_DOMAIN, Target, target_for

if TYPE_CHECKING:
    import onnx

#: What becomes of functions that a model defines for itself.
FUNCTIONS = ("keep", "inline", "vendor")

#: Called with the finished message before it is written; it may change the message, or return another.
PostExportHook = Callable[["onnx.ModelProto"], "onnx.ModelProto | None"]


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """How to export.

    ``opset_version`` is an int for ``ai.onnx`` or a mapping of domains; ``domains`` a whitelist, None for all;
    ``target`` a runtime by name, as ``tenonnx targets`` lists them. Tensors of at least ``external_data_threshold``
    bytes go to a data file beside the model; with None those do that did.
    ``fuse`` puts one node where the body of an op stands that the target has, one of the ``domains`` included; with
    names of ops it looks for these, too, of which runtimes have seldom a kernel (``ai.onnx::GroupNormalization``).
    ``functions`` are those that the model defines for itself: ``keep`` where the target can, or ``inline``; ``vendor``
    also carries the ops of other packages as such functions, so that the model runs and is read without them.
    ``ir_version`` is that of the file, which must be able to hold the graph; with None it stays or is the lowest.
    ``tidy`` also sorts, declares every domain and writes every inferred type. ``include_training_state`` adds what an
    optimizer needs to go on, as initializers. ``overwrite`` replaces a read-only file, too. ``post_export_hooks`` run
    last, and then ``verify`` is called with the graph as it will be read back: when it raises, nothing is written.
    """

    opset_version: int | Mapping[str, int] | None = None
    domains: Collection[str] | None = None
    target: str | None = None
    external_data_threshold: int | None = None
    fuse: bool | Collection[str] = False
    functions: str = "keep"
    ir_version: int | None = None
    tidy: bool = False
    include_training_state: bool = False
    overwrite: bool = False
    post_export_hooks: Iterable[PostExportHook] = ()
    verify: Callable[[Graph], object] | None = None


@dataclass(slots=True)
class Report:
    """What an export did: the versions written, and what became of each node."""

    opsets: dict[str, int]
    ir_version: int
    changes: list[Change] = field(default_factory=list)

    @property
    def rewritten(self) -> list[Change]:
        """The nodes that were not kept as they were."""
        return [change for change in self.changes if change.action != "kept"]

    def to_json(self) -> dict[str, Any]:
        return {
            "opsets": self.opsets,
            "ir_version": self.ir_version,
            "nodes": [change.to_json() for change in self.changes],
        }

    def __str__(self) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items())
        kept = len(self.changes) - len(self.rewritten)
        lines = [f"opsets {opsets}; {kept} nodes kept, {len(self.rewritten)} rewritten"]
        return "\n".join([*lines, *(f"  {change}" for change in self.rewritten)])


@in_registry_of_graph
def export(
    graph: Graph, path: str | os.PathLike[str] | BinaryIO, config: ExportConfig | None = None, **fields: Any
) -> Report:
    """Write ``graph`` to a path or a binary stream; ``fields`` override those of ``config``.

    Without a target, or with the graph's own, every untouched node is written as it was read. Raises
    ``NotRepresentable`` naming every node that has no form in the target; then nothing is written.
    """
    try:
        settings = replace(config or ExportConfig(), **fields)
    except TypeError as error:
        known = ", ".join(ExportConfig.__dataclass_fields__)
        raise InvalidCall(
            "export takes the fields of ExportConfig", given=", ".join(fields), available=known
        ) from error
    if not isinstance(path, str | os.PathLike) and not hasattr(path, "write"):
        raise InvalidCall("export writes to a path or a binary stream", given=type(path).__name__)
    if not isinstance(settings.external_data_threshold, int | None):
        given = repr(settings.external_data_threshold)[:80]
        raise InvalidCall("external_data_threshold must be a number of bytes, or None", given=given)
    settings = replace(settings, post_export_hooks=_functions(settings.post_export_hooks))
    if settings.post_export_hooks and isinstance(path, str | os.PathLike) and is_native(path):
        raise InvalidCall(
            "post_export_hooks run on an ONNX file", given=os.fspath(path), do="name it *.onnx; graph.save has no hooks"
        )
    model, initializers, report = prepare(graph, settings)
    from tenonnx.formats.onnx.streaming import write_file, write_stream

    if isinstance(path, str | os.PathLike):
        write_file(path, model, initializers, settings.external_data_threshold, overwrite=settings.overwrite)
    else:
        write_stream(path, model, initializers)
    return report


def _functions(hooks: Any) -> tuple[PostExportHook, ...]:
    functions = tuple(hooks) if isinstance(hooks, Iterable) else (None,)
    if not all(map(callable, functions)):
        raise InvalidCall("post_export_hooks must be functions of a model, in a list", given=repr(hooks)[:80])
    return functions


def is_native(path: str | os.PathLike[str]) -> bool:
    """Whether a file of this name is one of our own format."""
    return Path(path).suffix.lower() == ".safetensors"  # as load tells: a file ".safetensors" has no suffix


@in_registry_of_graph
def to_proto(graph: Graph, **fields: Any) -> onnx.ModelProto:
    """What ``export`` with these fields of ``ExportConfig`` would write, as one message."""
    from tenonnx.formats.onnx.tensors import to_inline_proto

    model, initializers, _ = prepare(graph, replace(ExportConfig(), **fields))
    model.graph.initializer.extend(to_inline_proto(contents, name) for name, contents in initializers)
    return model


def pickled(graph: Graph) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
    """What ``pickle`` keeps of a graph: its message, with its training state, and those of its initializers."""
    from tenonnx.formats.onnx.tensors import to_inline_proto

    model, initializers, _ = prepare(graph, ExportConfig(include_training_state=True))
    tensors = [to_inline_proto(contents, name).SerializeToString() for name, contents in initializers]
    return _unpickled, (model.SerializeToString(), tensors)


def _unpickled(message: bytes, tensors: Iterable[bytes]) -> Graph:
    import onnx

    from tenonnx.formats.onnx.reader import parse_model, read_parts
    from tenonnx.formats.onnx.tensors import TensorContents

    protos = map(onnx.TensorProto.FromString, tensors)
    return read_parts(parse_model(message), [(proto.name, TensorContents(proto)) for proto in protos])


def prepare(graph: Graph, settings: ExportConfig) -> tuple[onnx.ModelProto, Any, Report]:
    """The message of an export, its initializers apart, and the report; verified where ``settings`` say so."""
    from tenonnx.formats.onnx.reader import read_parts
    from tenonnx.formats.onnx.training import add_training_state
    from tenonnx.formats.onnx.writer import ir_version, model_and_initializers

    graph = _asked(graph, settings)
    target = target_for(graph, settings.opset_version, settings.domains, settings.target)
    moved = _moved(graph, target, settings)
    packages = packages_in_use(moved.graph)
    if settings.functions == "vendor":
        moved = _carried(moved, target, settings)
    graph = copy_graph(moved.graph) if settings.tidy and moved.graph is graph else moved.graph
    if settings.tidy:
        infer(graph, strict=False)
    model, initializers = model_and_initializers(graph, tidy=settings.tidy)
    if target.runtime is not None:
        model.ir_version = ir_version(graph, target.runtime)
    if settings.include_training_state:
        initializers = add_training_state(graph, model, initializers)
    _name_packages(packages, model)
    for hook in settings.post_export_hooks:
        model = _hooked(hook, model, initializers, graph)
    if settings.verify is not None:
        settings.verify(read_parts(model, initializers, graph.registry))
    return model, initializers, Report(dict(graph.opsets), model.ir_version, moved.changes)


def _asked(graph: Graph, settings: ExportConfig) -> Graph:
    """The graph with its functions and IR version as they are asked for."""
    from tenonnx.formats.onnx.carried import calls_vendor_ops
    from tenonnx.formats.onnx.writer import check_ir_version

    if settings.functions not in FUNCTIONS:
        raise InvalidCall(
            "functions are kept or inlined, or carry those of a vendor",
            given=settings.functions,
            available=", ".join(FUNCTIONS),
        )
    inlined = settings.functions == "inline" or (settings.functions == "vendor" and calls_vendor_ops(graph))
    if graph.functions and inlined:
        graph = inline_functions(graph)
    if settings.ir_version is not None:
        check_ir_version(graph, settings.ir_version)
        graph = copy_graph(graph)
        graph.ir_version = settings.ir_version
    return graph


def _carried(moved: Retargeted, target: Target, settings: ExportConfig, *, refuse: bool = True) -> Retargeted:
    """What was moved, with ops of other packages as functions, which takes an IR version that has these."""
    from tenonnx.formats.onnx.carried import carry_vendor_ops
    from tenonnx.formats.onnx.writer import check_ir_version

    carried = carry_vendor_ops(moved, target, refuse=refuse)
    if settings.ir_version is not None:
        check_ir_version(carried.graph, settings.ir_version)
        carried.graph.ir_version = settings.ir_version
    return carried


def _name_packages(found: Mapping[str, str], model: onnx.ModelProto) -> None:
    """Say in the metadata which packages of others gave the graph its ops."""
    entry = next((entry for entry in model.metadata_props if entry.key == PACKAGES), None)
    if found:
        (entry or model.metadata_props.add(key=PACKAGES)).value = json.dumps(found)
    elif entry is not None:
        model.metadata_props.remove(entry)


def _hooked(hook: PostExportHook, model: onnx.ModelProto, initializers: Any, graph: Graph) -> onnx.ModelProto:
    """The message that a hook leaves. Raises ``InvalidModel`` naming the hook where it can no longer be read."""
    from tenonnx.formats.onnx.reader import read_parts

    name = getattr(hook, "__qualname__", type(hook).__qualname__)
    outputs = len(model.graph.output)
    try:
        given = hook(model)
    except Exception as error:
        error.add_note(f"raised by the hook {name}")
        raise
    left = model if given is None else given
    if not isinstance(left, type(model)):
        raise InvalidModel(f"the hook {name} must return a ModelProto, or None", given=type(left).__name__)
    if outputs and not left.graph.output:
        raise InvalidModel(f"the hook {name} must leave a model with outputs", given=f"none of {outputs}")
    try:
        read_parts(left, initializers, graph.registry)
    except TenonnxError as error:
        raise InvalidModel(f"the hook {name} must leave a model that can be read", given=str(error)) from error
    return left


def _moved(graph: Graph, target: Target, settings: ExportConfig, *, refuse: bool = True) -> Retargeted:
    """The graph as it is to be written: itself where that is possible."""
    if target.runtime is None and _is_as_written(graph, target.opsets, settings.domains):
        moved = Retargeted(graph, list(all_kept(graph)))
    else:
        moved = retarget_to(graph, target, refuse=refuse)
    if not settings.fuse or moved.refused:
        return moved
    also = [settings.fuse] if isinstance(settings.fuse, str) else settings.fuse
    return _fused(moved, target, settings.domains or (), () if also is True else also)


@in_registry_of_graph
def plan(graph: Graph, settings: ExportConfig) -> tuple[Target, list[Change], int | None]:
    """Where an export would go, what it would make of each node, with all that stands in the way, and the IR version.

    The IR version is None where the target reads none that the graph can be written in.
    """
    from tenonnx.formats.onnx.writer import ir_version

    graph = _asked(graph, settings)
    target = target_for(graph, settings.opset_version, settings.domains, settings.target)
    planned = _moved(graph, target, settings, refuse=False)
    if settings.functions == "vendor" and not planned.refused:
        planned = _carried(planned, target, settings, refuse=False)
    try:
        return target, planned.changes, ir_version(planned.graph, target.runtime)
    except NotRepresentable as error:
        refused = Change(graph.name, "graph", "refused", f"{error.what}: {error.given}", do=error.do)
        return target, [*planned.changes, refused], None


def _fused(moved: Retargeted, target: Target, domains: Collection[str], also: Collection[str]) -> Retargeted:
    """What was moved, with bodies of ops that the target has, or that are named, as one node."""
    graph = copy_graph(moved.graph)
    named = [canonical_domain(name.rpartition("::")[0]) for name in also]
    graph.opsets = {**{domain: target.opsets.get(domain, 1) for domain in (*domains, *named)}, **graph.opsets}
    fused = fuse(graph, also=also)
    used = {node.domain for node in fused.walk()}
    fused.opsets = {d: v for d, v in fused.opsets.items() if d in used or d in moved.graph.opsets}
    before = {node.label: node.op_type for node in moved.graph.nodes}
    if any(before.get(node.label) != node.op_type for node in fused.nodes):  # the target may lack them for these types
        wide = replace(target, opsets={**fused.opsets, **target.opsets}, also=frozenset(also))
        fused = retarget_to(fused, wide, refuse=target.runtime is not None).graph
    found = [node for node in fused.nodes if before.get(node.label) != node.op_type]
    changes = []
    for node in found:
        made_for_it = isinstance(node.op, Op) and node.op.primitive
        reason = "leads to what was fused" if made_for_it else "its body stood here"
        title = f"{node.domain}::{node.op_type}@{fused.opsets[node.domain]}"
        changes.append(Change(node.label, title, "fused", reason))
    return Retargeted(fused, [*moved.changes, *changes])


def _is_as_written(graph: Graph, opsets: Mapping[str, int], domains: Collection[str] | None) -> bool:
    """Whether every node is written for these versions already."""
    if domains is not None and any(n.domain not in opsets for n in graph.walk()):
        return False
    if any(opsets.get(domain) != version for domain, version in graph.opsets.items() if domain in opsets):
        return False
    for node in graph.walk():
        if node.origin is None and isinstance(node.op, Op) and node.domain != INTERNAL_DOMAIN:
            if node.domain not in graph.opsets or opsets.get(node.domain) != node.version:
                return False
        elif node.domain == INTERNAL_DOMAIN or (node.domain in opsets and node.version != opsets[node.domain]):
            return False
    return True
