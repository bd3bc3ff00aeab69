"""Options of a conversion, each defined once with its help text and flag."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph
    from tenonnx_convert.verifying.compare_outputs import Limit

#: Treatment of model-local functions.
FUNCTIONS = ("keep", "inline", "vendor")

#: Scope of the types that a file declares.
SHAPES = ("all", "interface")

#: Symbol for the first dim of inputs with ``dynamic_batch``.
BATCH = "batch"

#: Default time limit of a conversion, before writing, in seconds.
TIMEOUT = 300.0

#: Function that is called with the finished ModelProto before it is written, and with the graph if it takes two
#: arguments; it modifies the ModelProto or returns another. Also an object with such a method ``post_process``, or the
#: name of an installed hook.
PostExportHook = Any


@dataclass(frozen=True, slots=True)
class Option:
    """Metadata of a field: its ``help`` text, its flag on the command line, and the ``kind`` of its value there."""

    help: str
    flag: str = ""
    kind: str = "flag"
    metavar: str | None = None
    choices: Sequence[str] = ()


def option(default: Any, help: str, flag: str = "", **more: Any) -> Any:
    """A configuration field with default, help text and command-line ``flag``; see ``Option``."""
    metadata = {"option": Option(help, flag, **more)}
    return (
        field(default_factory=dict, metadata=metadata) if default == {} else field(default=default, metadata=metadata)
    )


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """Settings of an export.

    ``opset_version`` is an int for ``ai.onnx`` or a mapping of domains; ``domains`` a whitelist, None for all;
    ``target`` the name of a runtime, as listed by ``tenonnx targets``. Tensors of at least ``external_data_threshold``
    bytes go to a data file; with None, those that were external. ``step_options`` are options of packages' transforms
    by name, such as ``fuse``. ``functions`` treats model-local functions: ``keep`` if the target allows it, or
    ``inline``; ``vendor`` also converts third-party ops to such functions, so that the model runs without their
    packages. ``ir_version`` is that of the file; None keeps it if the opsets are unchanged, else uses that of the ONNX
    release of the opset. Metadata that it does not support is dropped. ``shapes`` selects the types to declare: of
    ``all`` values, or of the ``interface`` only; None keeps those of the source file. ``tidy`` also sorts nodes,
    declares every domain and writes every inferred type. ``strip`` removes doc strings, stack traces and local paths;
    None does so for models of a framework. ``include_training_state`` adds the optimizer state as initializers.
    ``overwrite`` also replaces a read-only file. ``post_export_hooks`` run last, each on the complete ModelProto:
    functions, objects with ``post_process``, or names of installed hooks. ``verify`` is then called with the graph read
    back from the result; if it raises, nothing is written. True compares its outputs with those of the exported graph,
    a number is the absolute tolerance of that comparison.
    """

    opset_version: int | Mapping[str, int] | None = option(
        None,
        "Target opset of ai.onnx, such as 17, or of another domain, such as com.microsoft=1. Repeatable.",
        "--opset",
        kind="opsets",
        metavar="N",
    )
    domains: Collection[str] | None = option(
        None, "The only operator domains that the result may use.", "--domains", kind="names", metavar="A,B"
    )
    target: Any = option(
        None,
        "The runtime or converter that the model is for: a name that `tenonnx targets` lists, or a target file "
        "(.toml, .json).",
        "--target",
        kind="text",
        metavar="NAME|FILE",
    )
    ops: Collection[str] | None = option(
        None,
        "The only ops that the result may use, of ai.onnx or written domain::Name.",
        "--ops",
        kind="names",
        metavar="A,B",
    )
    without: Collection[str] | None = option(
        None, "Ops that the result may not use.", "--without", kind="names", metavar="A,B"
    )
    assume_finite: bool = option(
        False,
        "Allow replacements that are wrong for NaN, infinities and huge values.",
        "--assume-finite",
        kind="flag",
    )
    approximate: bool = option(
        False, "Allow replacements that are approximate, and those of --assume-finite.", "--approximate", kind="flag"
    )
    external_data_threshold: int | None = option(
        None,
        "Store tensors of at least this size as external data, in a file beside the model.",
        "--external-data-threshold",
        kind="count",
        metavar="BYTES",
    )
    functions: str = option(
        "keep",
        "Model-local functions: keep them, inline them, or (vendor) also define the ops of third-party packages as "
        "model-local functions, so that the file runs without those packages.",
        "--functions",
        kind="choice",
        choices=FUNCTIONS,
    )
    ir_version: int | None = option(
        None,
        "IR version of the file. By default the model's own, or, where the opset changes, that of the ONNX "
        "release that introduced the opset.",
        "--ir-version",
        kind="version",
        metavar="N",
    )
    step_options: Mapping[str, Any] = field(default_factory=dict)
    tidy: bool = option(
        False, "Also sort nodes topologically, declare every domain and write the types of all values.", "--tidy"
    )
    strip: bool | None = option(
        None,
        "Leave out doc strings, stack traces and metadata with paths of the exporting machine; scopes of modules stay. "
        "On by default for models from a framework.",
        "--strip/--no-strip",
    )
    shapes: str | None = option(
        None,
        "Write the types of all values, or of inputs and outputs only. By default, the types that the "
        "source file declares.",
        "--shapes",
        kind="choice",
        choices=SHAPES,
    )
    include_training_state: bool = False
    overwrite: bool = option(False, "Replace the output file even if it is read-only.", "--overwrite")
    post_export_hooks: Iterable[PostExportHook] = option(
        (),
        "Post-process the ModelProto before it is written: a hook of an installed package, or FILE.py:FUNCTION, "
        "which is executed. Repeatable; hooks run in the given order.",
        "--hook",
        kind="hooks",
        metavar="NAME",
    )
    verify: Callable[[Graph], object] | bool | float | None = option(
        None,
        "Run the original and the converted model on the same inputs and write nothing if outputs differ. On by "
        "default where both can run.",
        "--verify/--no-verify",
    )


@dataclass(frozen=True, slots=True)
class ConvertConfig(ExportConfig):
    """Settings of a conversion: those of ``ExportConfig``, and those of the earlier steps.

    ``transforms`` are names of installed transforms, such as ``simplify``, or functions from a graph to a graph.
    ``initializers_as_constants`` removes initializers from the list of inputs; None does so only for half precision. IR
    versions below 4 list all initializers there without making them inputs. ``fix_shapes`` are dims of inputs by name,
    and ``free_dims`` symbols by name and axis. ``dynamic_batch`` replaces the first dim of all inputs by a symbol:
    ``yes``, or ``try`` to keep the number if a node requires it. ``verify`` compares both models; None tolerates that
    they cannot run, True requires it. ``verify_with`` is a runner of the user, called with the path of the file and
    feeds by name, whose outputs must match: ``MODULE:FUNCTION``, ``PYTHON MODULE:FUNCTION``, or a command with
    ``{model}``, ``{inputs}`` and ``{outputs}``. The reference is the original model, on ``feeds``, or on random inputs
    by ``seed`` and ``input_shapes``; ``atol`` and ``rtol`` replace the tolerances, of all outputs or by name, ``exact``
    requires equal bits. All steps except writing must end within ``timeout`` seconds.
    """

    transforms: Collection[str | Callable[[Graph], Graph]] = ()
    verify_with: str | None = option(
        None,
        "Also run the file in a runtime of yours: a function of a path and of inputs by name, as MODULE:FUNCTION or "
        'FILE.py:FUNCTION, in another interpreter as "PYTHON FILE.py:FUNCTION"; or a command with {model}, {inputs} '
        "and {outputs}. It is executed. Nothing is written if it fails or outputs differ.",
        "--verify-with",
        kind="text",
        metavar="RUNNER",
    )
    initializers_as_constants: bool | None = option(
        None,
        "Make initializers that are listed as graph inputs constant, so that they are folded and fused. On by default "
        "with --float16 and --bfloat16, and below IR version 4.",
        "--initializers-as-constants/--no-initializers-as-constants",
    )
    fix_shapes: Mapping[str, Sequence[int | str | None]] = option(
        {},
        "Make the dims of an input static, such as image:1,3,224,224. Repeatable.",
        "--fix-shapes",
        kind="dims",
        metavar="NAME:DIMS",
    )
    free_dims: Mapping[str, Mapping[int, str]] = option(
        {},
        "Make dims of an input dynamic, such as image:0=batch,2=height. Repeatable.",
        "--free-dims",
        kind="free_dims",
        metavar="NAME:AXIS=SYMBOL",
    )
    dynamic_batch: str | None = option(
        None,
        "Make the first dim of all inputs dynamic, by the name of batch; with try, keep it static where a node "
        "depends on it.",
        "--dynamic-batch",
        kind="wish",
        metavar="[try]",
    )
    feeds: Mapping[str, Any] | None = None
    input_shapes: Mapping[str, Sequence[int | str | None]] = option(
        {},
        "Shape of an input, such as x:1,3,224,224 or mask:batch,past+new. Repeatable.",
        "--input-shapes",
        kind="dims",
        metavar="NAME:DIMS",
    )
    seed: int = option(0, "Seed of random inputs.", "--seed", kind="count")
    atol: Limit = option(
        None,
        "Absolute tolerance, or that of one output. By default it depends on the element type. Repeatable.",
        "--atol",
        kind="limits",
        metavar="[OUTPUT=]N",
    )
    rtol: Limit = option(
        None,
        "Relative tolerance, or that of one output. By default it depends on the element type. Repeatable.",
        "--rtol",
        kind="limits",
        metavar="[OUTPUT=]N",
    )
    exact: bool = option(False, "Require outputs to be identical bit for bit.", "--exact")
    timeout: float = option(
        TIMEOUT,
        "Stop after this many seconds; the model is then not verified.",
        "--timeout",
        kind="positive",
        metavar="SECONDS",
    )


def options_of(config: type[Any]) -> dict[str, Option]:
    """The options of a configuration by field, in order."""
    return {each.name: each.metadata["option"] for each in fields(config) if "option" in each.metadata}
