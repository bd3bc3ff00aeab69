"""Anonymized copies of models, without names, texts and weights."""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from tenonnx import Graph, InvalidCall, default_registry
from tenonnx.extend import Op, Registry
from tenonnx.tools import did_you_mean, listing
from tenonnx_debug.files import bodies, bodies_of
from tenonnx_debug.weights import Numbers

#: The new domain of functions, and of ops that no installed package provides.
_PRIVATE = "private"

#: Message fields with documentation and metadata.
_NOTES = ("doc_string", "metadata_props")

#: The attribute of Einsum, whose letters name axes.
_EQUATION = "equation"


def anonymize(model: ModelProto | Graph, *, keep: Collection[str] = (), seed: int = 0) -> ModelProto:
    """Copy a model without its names, documentation, metadata, strings and weights.

    Values, nodes, functions, dynamic dims and private ops are renamed consistently. Float weights become random, with
    the same shapes, dtypes, ranges, zeros, special values and equal rows. Large integer tensors become random in the
    same range; small ones, which often are shapes, axes and indices, are kept. Op types, domains and attribute names of
    installed packages are kept, as are numeric attributes, enumerated strings, and the initializers named in ``keep``.
    ``seed`` is the seed of the random numbers.

    Raises ``InvalidCall`` for a name in ``keep`` that is not an initializer.
    """
    source = model.to_proto() if isinstance(model, Graph) else model
    names = {each.name for graph in _graphs(source.graph) for each in graph.initializer}
    unknown = sorted(set(keep) - names)
    if unknown:
        what, do = f'the model has no initializer "{unknown[0]}"', did_you_mean(unknown[0], names)
        raise InvalidCall(what, available=listing(sorted(names)), do=do)
    copy = ModelProto()
    copy.CopyFrom(source)
    _Anonymizer(copy, set(keep), seed).run()
    return copy


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and its nested subgraphs."""
    yield graph
    for node in graph.node:
        for inner in bodies(node):
            yield from _graphs(inner)


def _clear(message: Any, *fields: str) -> None:
    for field in fields:
        message.ClearField(field)


class _Names:
    """Mapping from old names to new ones, generated on first use."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._new: dict[str, str] = {}

    def __call__(self, old: str) -> str:
        if not old:
            return old
        return self._new.setdefault(old, f"{self._prefix}{len(self._new)}")

    def keep(self, names: Iterable[str]) -> None:
        """Keep these names, unless they are mapped already."""
        for name in names:
            self._new.setdefault(name, name)


class _Anonymizer:
    """Anonymizes one model in place."""

    def __init__(self, model: ModelProto, keep: set[str], seed: int) -> None:
        self.model, self.keep = model, keep
        self.registry: Registry = default_registry()
        tensors = [tensor for graph in _graphs(model.graph) for tensor in graph.initializer]
        self.random = Numbers(seed, map(numpy_helper.to_array, tensors))
        self.values, self.nodes, self.dims = _Names("v"), _Names("n"), _Names("d")
        self.ops, self.attributes, self.texts = _Names("F"), _Names("a"), _Names("t")
        self.functions = {(each.domain, each.name) for each in model.functions}
        self.versions = {each.domain or "ai.onnx": each.version for each in model.opset_import}

    def run(self) -> None:
        model = self.model
        _clear(model, "producer_name", "producer_version", "domain", "model_version", "training_info", *_NOTES)
        model.graph.name = "model"
        self.values.keep(self._names_that_kernels_know())
        self.graph(model.graph)
        for function in model.functions:
            self.function(function)
        for imported in (*model.opset_import, *(each for f in model.functions for each in f.opset_import)):
            if not self._is_known_domain(imported.domain):
                imported.domain = _PRIVATE
        _without_duplicates(model.opset_import)
        for function in model.functions:
            _without_duplicates(function.opset_import)

    def function(self, function: onnx.FunctionProto) -> None:
        function.name, function.domain = self.ops(f"{function.domain}::{function.name}"), _PRIVATE
        _clear(function, "value_info", *_NOTES)
        for names, rename in (
            (function.input, self.values),
            (function.output, self.values),
            (function.attribute, self.attributes),
        ):
            names[:] = [rename(name) for name in names]
        for attribute in function.attribute_proto:
            self.attribute(attribute, None)
            attribute.name = self.attributes(attribute.name)
        for node in function.node:
            self.node(node)

    def graph(self, graph: GraphProto) -> None:
        _clear(graph, "quantization_annotation", *_NOTES)
        indices = self._indices(graph)
        for tensor in graph.initializer:
            self.tensor(tensor, is_index=tensor.name in indices, is_kept=tensor.name in self.keep)
            tensor.name = self.values(tensor.name)
        for sparse in graph.sparse_initializer:
            self.tensor(sparse.values)
            sparse.values.name = self.values(sparse.values.name)
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.name = self.values(value.name)
            _clear(value, *_NOTES)
            self.type(value.type)
        for node in graph.node:
            self.node(node)

    def node(self, node: NodeProto) -> None:
        op = self._op(node)
        node.name = self.nodes(node.name)
        _clear(node, *_NOTES)
        node.input[:] = [self.values(name) for name in node.input]
        node.output[:] = [self.values(name) for name in node.output]
        for attribute in node.attribute:
            self.attribute(attribute, op)
            if op is None:
                attribute.name = self.attributes(attribute.name)
        if op is None:
            node.op_type = self.ops(f"{node.domain}::{node.op_type}")
            node.domain, node.overload = _PRIVATE, ""

    def attribute(self, attribute: AttributeProto, op: Op | None) -> None:
        """Anonymize an attribute; ``op`` is None for a node of a private op."""
        attribute.ClearField("doc_string")
        if attribute.ref_attr_name:
            attribute.ref_attr_name = self.attributes(attribute.ref_attr_name)
        if attribute.name == _EQUATION and op is not None:
            attribute.s = _plain_equation(attribute.s.decode("utf-8", "replace")).encode()
            return
        allowed = _enumerated(op, attribute.name)
        if attribute.type == AttributeProto.STRING and attribute.s.decode("utf-8", "replace") not in allowed:
            attribute.s = self.texts(attribute.s.decode("utf-8", "replace")).encode()
        if attribute.type == AttributeProto.STRINGS:
            texts = [each.decode("utf-8", "replace") for each in attribute.strings]
            attribute.strings[:] = [(each if each in allowed else self.texts(each)).encode() for each in texts]
        if attribute.type == AttributeProto.FLOATS and len(attribute.floats) > _FEW:
            attribute.floats[:] = self.random.replaced(np.array(attribute.floats, np.float32)).tolist()
        for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
            self.tensor(tensor, is_index=op is not None)
            tensor.ClearField("name")
        for inner in bodies_of(attribute):
            inner.name = "body"
            self.graph(inner)
        for kind in (*([attribute.tp] if attribute.HasField("tp") else []), *attribute.type_protos):
            self.type(kind)

    def tensor(self, tensor: TensorProto, *, is_index: bool = False, is_kept: bool = False) -> None:
        """Replace the contents of a tensor; small integer tensors, which may be sizes or indices, are kept."""
        _clear(tensor, *_NOTES)
        if is_kept:
            return
        if tensor.data_type == TensorProto.STRING:
            texts = [self.texts(each.decode("utf-8", "replace")).encode() for each in tensor.string_data]
            tensor.string_data[:] = texts
            return
        contents = numpy_helper.to_array(tensor)
        if contents.dtype == bool or (contents.dtype.kind in "iu" and (is_index or contents.size <= _FEW)):
            return
        new = numpy_helper.from_array(self.random.replaced(contents), tensor.name)
        new.data_type = tensor.data_type
        tensor.CopyFrom(new)

    def type(self, kind: onnx.TypeProto) -> None:
        """Rename the dynamic dims of a type."""
        kind.ClearField("denotation")
        which = kind.WhichOneof("value")
        if which in ("tensor_type", "sparse_tensor_type"):
            for dim in getattr(kind, which).shape.dim:
                dim.ClearField("denotation")
                if dim.dim_param:
                    dim.dim_param = self.dims(dim.dim_param)
        elif which in ("sequence_type", "optional_type"):
            self.type(getattr(kind, which).elem_type)
        elif which == "map_type":
            self.type(kind.map_type.value_type)
        elif which == "opaque_type":
            kind.opaque_type.domain, kind.opaque_type.name = _PRIVATE, self.ops(kind.opaque_type.name)

    def _op(self, node: NodeProto) -> Op | None:
        """The op of a node, if an installed package provides it."""
        domain = node.domain or "ai.onnx"
        if (node.domain, node.op_type) in self.functions:
            return None
        return self.registry.lookup(domain, node.op_type, self.versions.get(domain, 1))

    def _names_that_kernels_know(self) -> Iterator[str]:
        """Names of subgraph inputs and outputs of ops outside ``ai.onnx``, whose kernels may refer to them by name."""
        for graph in _graphs(self.model.graph):
            for node in graph.node:
                op = self._op(node)
                for inner in () if op is None or op.domain == "ai.onnx" else bodies(node):
                    yield from (each.name for each in (*inner.input, *inner.output))

    def _is_known_domain(self, domain: str) -> bool:
        return (domain or "ai.onnx") in self.registry.domains()

    def _indices(self, graph: GraphProto) -> set[str]:
        """The names of values that nodes read as positions, sizes or axes."""
        names = set()
        for node in graph.node:
            op = self._op(node)
            if op is not None:
                names |= {name for place, name in enumerate(node.input) if name and op.signature.input_at(place).index}
        return names


#: A word of a description.
_WORD = re.compile(r"\w+")

#: Maximum number of elements of integer tensors, and of float lists in attributes, that are kept as sizes or scales.
_FEW = 16


def _enumerated(op: Op | None, name: str) -> Collection[str]:
    """The enumerated values of a string attribute: its declared choices, and words of its public description."""
    if op is None:
        return ()
    texts: set[str] = set()
    domain = "" if op.domain == "ai.onnx" else op.domain
    if onnx.defs.has(op.name, domain):
        described = onnx.defs.get_schema(op.name, domain).attributes.get(name)
        texts |= set(_WORD.findall("" if described is None else described.description))
    for meaning in op.meanings:
        default = meaning.signature.attributes.get(name)
        texts |= {each for each in _flat(default) if isinstance(each, str)}
        for requirement in meaning.requirements.declared:
            texts |= {each for each in requirement.choices.get(name, ()) if isinstance(each, str)}
    return texts


def _flat(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _plain_equation(equation: str) -> str:
    """An equation of Einsum with its letters replaced by the first letters of the alphabet."""
    letters: dict[str, str] = {}
    for each in equation:
        if each.isalpha() and each not in letters:
            letters[each] = string.ascii_letters[len(letters)]
    return "".join(letters.get(each, each) for each in equation)


def _without_duplicates(imports: Any) -> None:
    """Keep the highest version of each domain."""
    versions = {each.domain: each.version for each in sorted(imports, key=lambda each: each.version)}
    del imports[:]
    imports.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions.items())
