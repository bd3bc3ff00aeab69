"""StableHLO: a graph exported by JAX, serialized or as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx.extend import NotRepresentable, TensorType

if TYPE_CHECKING:
    import jax

    from tenonnx.extend import Graph

#: Maximum number of bytes of weights in a serialized module.
_LARGEST = 2**31 - 1


class StableHlo:
    """``jax.export`` of a graph as a function from a dict of arrays to a dict of arrays; weights are inline."""

    title = "StableHLO"
    runtime = "jax"

    def write(self, graph: Graph, path: Path) -> Sequence[str]:
        """Write a file for ``jax.export.deserialize``. Raises ``UnsupportedOp`` and ``NotRepresentable``."""
        found, limits = exported(graph)
        path.write_bytes(self.contents(found))
        return limits

    def contents(self, module: jax.export.Exported) -> bytes:
        return bytes(module.serialize())

    def open(self, path: Path, graph: Graph) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        import jax

        return _run(jax.export.deserialize(bytearray(path.read_bytes())))


class Mlir(StableHlo):
    """The same module as text."""

    title = "StableHLO text"

    def contents(self, module: jax.export.Exported) -> bytes:
        return module.mlir_module().encode()

    def open(self, path: Path, graph: Graph) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Load the text as a module that is called like the export of the graph."""
        return _run(replace(exported(graph)[0], mlir_module_serialized=_serialized(path.read_text("utf-8"))))


STABLEHLO, MLIR = StableHlo(), Mlir()


def exported(graph: Graph) -> tuple[jax.export.Exported, list[str]]:
    """Export a graph by JAX, with 64-bit types if it has some and with symbolic dims; returns it and the relations of
    dims.

    Relations are added until JAX can infer the shapes of the model.
    """
    import jax

    from tenonnx.extend.backends import RunFailure
    from tenonnx_jax.functions import function
    from tenonnx_jax.kernels import DataDependent, Inconclusive, Unproven, traced

    _check(graph)
    with jax.enable_x64(True):
        call = function(graph)
        constraints: list[str] = []

        def main(inputs: dict[str, Any]) -> dict[str, Any]:
            found = call(call.parameters, inputs)
            return {v.name: jax.numpy.asarray(traced(found[v.name]), v.dtype.numpy) for v in graph.outputs}

        while True:
            scope = jax.export.SymbolicScope(constraints)
            specs = {
                v.name: jax.ShapeDtypeStruct(_shape(v.type, v.name, scope), v.type.dtype.numpy)
                for v in graph.inputs
                if isinstance(v.type, TensorType)
            }
            try:
                return jax.export.export(jax.jit(main))(specs), constraints
            except Unproven as error:
                if str(error) in constraints:
                    raise NotRepresentable(
                        "dims depend on each other in a way that JAX cannot express", given=str(error)
                    ) from error
                constraints.append(str(error))
            except (Inconclusive, DataDependent, RunFailure) as error:
                reason = str(error).splitlines()[0]
                do = "give the sizes of dynamic dims (--fix-shapes)"
                raise NotRepresentable("JAX cannot export the model with these dims", given=reason, do=do) from error


def _check(graph: Graph) -> None:
    """Raise ``NotRepresentable`` for inputs and outputs that are not arrays, and for too many bytes."""
    from tenonnx_jax.functions import is_array

    wrong = [f"{v.name}: {v.type}" for v in (*graph.inputs, *graph.outputs) if not is_array(v)]
    if wrong:
        raise NotRepresentable("JAX has no arrays of these types", given=", ".join(wrong))
    size = sum(v.data.nbytes for v in graph.variables if v.data is not None)
    if size > _LARGEST:
        given = f"{size:,} bytes of weights, which StableHLO holds inline"
        raise NotRepresentable("the model is too large for StableHLO, whose files end at 2 GiB", given=given)


def _shape(kind: TensorType, name: str, scope: Any) -> tuple[Any, ...]:
    """A shape with JAX's symbols. Raises ``NotRepresentable`` for an unknown rank, and for other expressions."""
    import jax

    if kind.shape is None:
        raise NotRepresentable(f'the rank of input "{name}" is unknown', do="give its shape (--fix-shapes)")
    dims = [f"{name}_{axis}" if dim is None else str(dim) for axis, dim in enumerate(kind.shape)]
    try:
        return jax.export.symbolic_shape(", ".join(dims) + ",", scope=scope) if dims else ()
    except ValueError as error:
        raise NotRepresentable(f'a dim of input "{name}" has no form in JAX', given=str(kind)) from error


def _serialized(text: str) -> bytes:
    """The portable artifact of a module in text form."""
    from jax.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo

    with mlir.make_ir_context():
        result: bytes = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())
    return result


def _run(module: jax.export.Exported) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that calls an exported module, with 64-bit types enabled."""
    import jax
    import numpy as np

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        with jax.enable_x64(True):
            return {name: np.asarray(array) for name, array in module.call(dict(feeds)).items()}

    return run
