"""Lowerings of operators that PyTorch's exporter does not know, as functions over ops of graphs.

The exporter writes a placeholder node for the call; reading its model calls the function to replace the node.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import onnx_ir
import torch
from torch.onnx._internal.exporter import _core
from torch.utils import _pytree as pytree

from tenonnx.extend import InvalidCall, Node, PluginError, PluginWarning, Value
from tenonnx.extend.formats import loaded
from tenonnx_frontends import guarded_rule
from tenonnx_torch.module_lowerings import OPERATOR, ModuleCall, standing_in
from tenonnx_torch.vision import VISION

#: Entry-point group of mappings from names of operators to functions.
GROUP = "tenonnx.torch_ops"

#: Domain and op type of placeholder nodes.
DOMAIN, _TYPE = "tenonnx.torch", "Call"

Form = Callable[..., Any]


class Forms:
    """The lowerings for one module: the caller's, then those of installed packages, then ours for ``torchvision``.

    A lowering has the operator's signature, with values for tensors, and returns a value for each result. The lowering
    of a module class (the class, or ``"acme.layers.Router"``) has the signature of ``forward``, with the module as
    first argument, whose parameters and buffers are values. Raises ``InvalidCall`` for anything but a mapping from
    these, or from names such as ``"acme::scale"``, to functions, and ``PluginError`` for such a package.
    """

    def __init__(self, given: Mapping[str, Form] | None = None) -> None:
        self.functions: dict[Any, Form] = dict(VISION)
        for plugin, found in reversed(list(loaded(GROUP))):
            if problem := _problem(found) or _problem_of_package(found):
                what = f"the forms of {plugin.source} are not functions by operators of its own"
                warnings.warn(PluginWarning(str(PluginError(what, given=problem))), stacklevel=2)
            else:
                self.functions |= {key: guarded_rule(plugin, form, _title(key)) for key, form in found.items()}
        if given is not None and (problem := _problem(given)):
            raise InvalidCall(
                "forms are not functions by operator or class of modules",
                given=problem,
                available='{"acme::scale": function, Router: function}',
            )
        self.functions |= given or {}
        self._calls: list[tuple[Form, list[Any], Any, list[int]]] = []
        self._modules: list[ModuleCall] = []

    def for_modules(self, module: torch.nn.Module) -> AbstractContextManager[None]:
        """While a module is traced, replace submodules with lowerings by operators."""
        return standing_in(module, self._form_of, self._modules)

    def _form_of(self, module: torch.nn.Module) -> Form | None:
        kind = type(module)
        return self.functions.get(kind) or self.functions.get(_title(kind))

    def translations(self, program: Any) -> dict[Any, Form]:
        """Functions for the exporter that write placeholder nodes, by operator of the program."""
        result: dict[Any, Form] = {}
        for target in {*_targets(program), *self._named()}:
            if target is OPERATOR:
                result[target] = self._module_writer()
                continue
            form = self.functions.get(target._schema.name) or self.functions.get(str(target).replace(".", "::", 1))
            if form is not None:
                result[target] = self._writer(target, form)
        return result

    def _named(self) -> Iterator[Any]:
        """Operators with lowerings; decompositions may lead to them."""
        for key in self.functions:
            space, separator, name = key.partition("::") if isinstance(key, str) else ("", "", "")
            packet = getattr(getattr(torch.ops, space), name.partition(".")[0], None) if separator else None
            yield from () if packet is None else (getattr(packet, overload) for overload in packet.overloads())

    @property
    def rules(self) -> dict[str, Callable[..., Any]] | None:
        """Rules that replace placeholder nodes when a model is read; None if there are none."""
        return {f"{DOMAIN}::{_TYPE}": self._read} if self._calls else None

    def _writer(self, operator: Any, form: Form) -> Form:
        def written(*arguments: Any, **keywords: Any) -> Any:
            outputs = self._write(form, (arguments, keywords), len(operator._schema.returns))
            return outputs[0] if len(outputs) == 1 else outputs

        return written

    def _module_writer(self) -> Form:
        def written(tensors: Any, call: int) -> Any:
            (module,) = [each for each in self._modules if each.number == call]
            return self._write(module, ((list(tensors),), {}), module.count)

        return written

    def _write(self, form: Form, given: Any, count: int) -> Any:
        leaves, spec = pytree.tree_flatten(given)
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, onnx_ir.Value)]
        key = onnx_ir.AttrInt64("call", len(self._calls))
        self._calls.append((form, leaves, spec, places))
        node = onnx_ir.Node(DOMAIN, _TYPE, [leaves[k] for k in places], [key], num_outputs=count, version=1)
        tracer: Any = _core.current_tracer
        tracer.nodes.append(node)
        return node.outputs

    def _read(self, node: Node, *inputs: Value) -> Any:
        call: Any = node.attributes["call"]
        form, leaves, spec, places = self._calls[call]
        remaining = list(leaves)
        for place, value in zip(places, inputs, strict=True):
            remaining[place] = value
        arguments, keywords = pytree.tree_unflatten(remaining, spec)
        result = form(*arguments, **keywords)
        return tuple(result) if isinstance(result, list) else result


def _targets(program: Any) -> Iterator[Any]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node.target for node in module.graph.nodes if isinstance(node.target, torch._ops.OpOverload))


def _problem(found: Any) -> str:
    if not isinstance(found, Mapping):
        return repr(found)[:200]
    wrong = [key for key, form in found.items() if not _is_name(key) or not callable(form)]
    return repr({wrong[0]: found[wrong[0]]})[:200] if wrong else ""


def _problem_of_package(found: Mapping[Any, Form]) -> str:
    """Reason to reject a package's lowering of PyTorch's own operators: it would change everybody's models."""
    theirs = [_title(key) for key in found if re.match(r"(aten|prims|torch)(::|\.)", _title(key))]
    return f"{theirs[0]}, which is PyTorch's: give it as forms= where a module is exported" if theirs else ""


def _title(key: Any) -> str:
    return key if isinstance(key, str) else f"{key.__module__}.{key.__qualname__}"


def _is_name(key: Any) -> bool:
    """Whether an object names an operator or a module class."""
    if isinstance(key, str):
        return "::" in key or "." in key
    return isinstance(key, type) and issubclass(key, torch.nn.Module)
