"""What can be asked of a conversion: each option once, with its help; the command line has its flags from here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph

#: What becomes of functions that a model defines for itself.
FUNCTIONS = ("keep", "inline", "vendor")

#: Which types a file declares.
SHAPES = ("all", "interface")

#: The share of the largest number of an output by which half precision may change it.
BUDGET = 0.01

#: Seconds that a conversion may take until it writes.
TIMEOUT = 300.0

#: Called with the finished message before it is written, and with the graph where it takes two; it may change the
#: message, or return another. Or an object with such a function ``post_process``, or the name of an installed hook.
PostExportHook = Any


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is asked for: its ``help``, its flag on the command line, and of what ``kind`` the text there is.

    ``asks`` is the transform of a package that is wanted where the field is set.
    """

    help: str
    flag: str = ""
    kind: str = "flag"
    metavar: str | None = None
    choices: Sequence[str] = ()
    asks: str = ""


def option(default: Any, help: str, flag: str = "", **more: Any) -> Any:
    """A field of a configuration with its default, which users of the command line give as ``flag``; see ``Option``."""
    metadata = {"option": Option(help, flag, **more)}
    return (
        field(default_factory=dict, metadata=metadata) if default == {} else field(default=default, metadata=metadata)
    )


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """How to export.

    ``opset_version`` is an int for ``ai.onnx`` or a mapping of domains; ``domains`` a whitelist, None for all;
    ``target`` a runtime by name, as ``tenonnx targets`` lists them. Tensors of at least ``external_data_threshold``
    bytes go to a data file beside the model; with None those do that did.
    ``fuse`` replaces subgraphs by ops available in the target, those of ``domains`` included; names of ops, here or in
    ``fuse_also``, add ops that few runtimes implement (``ai.onnx::GroupNormalization``).
    ``functions`` are those that the model defines for itself: ``keep`` where the target can, or ``inline``; ``vendor``
    also carries the ops of other packages as such functions, so that the model runs and is read without them.
    ``ir_version`` is that of the file, which must be able to hold the graph; with None it stays where opsets do, and is
    that of the ONNX release that brought the opset where these change. Notes that it has no place for are left out.
    ``shapes`` says which types the file declares: of ``all`` values, or of the ``interface`` alone, its inputs and
    outputs; with None those that the file had. ``tidy`` also sorts, declares every domain and writes every inferred
    type. ``include_training_state`` adds what an optimizer needs to go on, as initializers.
    ``overwrite`` replaces a read-only file, too. ``post_export_hooks`` run
    last, each on the whole message: functions, objects with ``post_process``, or names of what packages offer. Then
    ``verify`` is called with the graph as it will be read back: when it raises, nothing is written. True compares its
    numbers with those of the graph that is exported, a number is the absolute difference that is allowed then.
    """

    opset_version: int | Mapping[str, int] | None = option(
        None, "Target opset of ai.onnx, such as 17, or of another domain, such as com.microsoft=1. Repeatable.",
        "--opset",
        kind="opsets", metavar="N",
    )  # fmt: skip
    domains: Collection[str] | None = option(
        None, "The only operator domains that the result may use.", "--domains", kind="names", metavar="A,B"
    )
    target: str | None = option(
        None, "The runtime or converter that the model is for; `tenonnx targets` lists them.", "--target",
        kind="text", metavar="NAME",
    )  # fmt: skip
    external_data_threshold: int | None = option(
        None, "Store tensors of at least this size as external data, in a file beside the model.",
        "--external-data-threshold",
        kind="count", metavar="BYTES",
    )  # fmt: skip
    fuse: bool | Collection[str] | None = option(
        False,
        "Fuse subgraphs into ops available in the target, such as LayerNormalization or Attention. On by default if "
        "--opset is newer than the model's, or --domains names a domain that the model does not use.",
        "--fuse/--no-fuse", asks="fuse",
    )  # fmt: skip
    functions: str = option(
        "keep",
        "Model-local functions: keep them, inline them, or (vendor) also define the ops of third-party packages as "
        "model-local functions, so that the file runs without those packages.",
        "--functions", kind="choice", choices=FUNCTIONS,
    )  # fmt: skip
    ir_version: int | None = option(
        None, "IR version of the file. By default the model's own, or, where the opset changes, that of the ONNX "
        "release that introduced the opset.",
        "--ir-version", kind="version", metavar="N",
    )  # fmt: skip
    tidy: bool = option(
        False, "Also sort nodes topologically, declare every domain and write the types of all values.", "--tidy"
    )
    shapes: str | None = option(
        None, "Write the types of all values, or of inputs and outputs only. By default, the types that the "
        "source file declares.",
        "--shapes", kind="choice", choices=SHAPES,
    )  # fmt: skip
    include_training_state: bool = False
    overwrite: bool = option(False, "Replace the output file even if it is read-only.", "--overwrite")
    post_export_hooks: Iterable[PostExportHook] = option(
        (),
        "Post-process the ModelProto before it is written: a hook of an installed package, or FILE.py:FUNCTION, "
        "which is executed. Repeatable; hooks run in the given order.",
        "--hook", kind="hooks", metavar="NAME",
    )  # fmt: skip
    verify: Callable[[Graph], object] | bool | float | None = option(
        None,
        "Run the original and the converted model on the same inputs and write nothing if outputs differ. On by "
        "default where both can run.",
        "--verify/--no-verify",
    )
    fuse_also: Collection[str] = option(
        (),
        "Also fuse into an op that few runtimes implement, such as GroupNormalization, SimplifiedLayerNormalization "
        "or com.microsoft::QLinearAdd. Repeatable.",
        "--fuse-also", kind="texts", metavar="OP", asks="fuse",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConvertConfig(ExportConfig):
    """How to convert: what ``ExportConfig`` has, and what is done before.

    ``transforms`` are names of what packages offer, such as ``simplify``, or functions from a graph to a graph.
    ``fix_shapes`` are dims of inputs by name, and ``free_dims`` symbols by name and axis. ``float16`` or ``bfloat16``
    writes float32 in half precision within ``budget``, ``half_interface`` that of inputs and outputs, too.
    With ``layout`` the output is the folder of a model server.
    ``fuse`` None fuses where newer opsets or other domains are asked for, and ``verify`` None compares where both
    models run; with True they must. The comparison is with the model as it was read, on ``feeds``, or on inputs that
    drawn at random from ``seed`` and ``input_shapes``; ``absolute`` and ``relative`` replace its tolerances, ``exact``
    asks for equal bits. All but the writing must end within ``timeout`` seconds.
    """

    fuse: bool | Collection[str] | None = field(
        default=None, metadata=ExportConfig.__dataclass_fields__["fuse"].metadata
    )
    transforms: Collection[str | Callable[[Graph], Graph]] = ()
    fix_shapes: Mapping[str, Sequence[int | str | None]] = option(
        {}, "Make the dims of an input static, such as image:1,3,224,224. Repeatable.", "--fix-shapes",
        kind="dims", metavar="NAME:DIMS",
    )  # fmt: skip
    free_dims: Mapping[str, Mapping[int, str]] = option(
        {}, "Make dims of an input dynamic, such as image:0=batch,2=height. Repeatable.", "--free-dims",
        kind="free_dims", metavar="NAME:AXIS=SYMBOL",
    )  # fmt: skip
    float16: bool = option(
        False, "Convert float32 to float16. Inputs and outputs stay float32, and so do nodes that need it.",
        "--float16",
        asks="precision",
    )  # fmt: skip
    bfloat16: bool = option(False, "Convert float32 to bfloat16, as --float16 does.", "--bfloat16", asks="precision")
    half_interface: bool = option(
        False, "With --float16 or --bfloat16: also convert inputs and outputs.", "--half-interface"
    )
    budget: float = option(
        BUDGET,
        "With --float16 or --bfloat16: the allowed error of each output, relative to its largest absolute value. "
        "Nodes are kept in float32 until it is met.",
        "--budget", kind="positive",
    )  # fmt: skip
    layout: str | None = option(
        None, "Write the folder that a model server takes, triton or kserve; the output is then a folder.", "--layout",
        kind="text", metavar="SERVER",
        asks="layout",
    )  # fmt: skip
    feeds: Mapping[str, Any] | None = None
    input_shapes: Mapping[str, Sequence[int | str | None]] = option(
        {}, "Shape of an input, such as x:1,3,224,224 or mask:batch,past+new. Repeatable.", "--input-shapes",
        kind="dims", metavar="NAME:DIMS",
    )  # fmt: skip
    seed: int = option(0, "Seed of random inputs.", "--seed", kind="count")
    absolute: float | None = option(
        None, "Absolute tolerance. By default it depends on the element type.", "--atol", kind="difference"
    )
    relative: float | None = option(
        None, "Relative tolerance. By default it depends on the element type.", "--rtol", kind="difference"
    )
    exact: bool = option(False, "Require outputs to be identical bit for bit.", "--exact")
    timeout: float = option(
        TIMEOUT, "Stop verification after this many seconds; the result is then not verified.",
        "--timeout", kind="positive", metavar="SECONDS",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.float16 and self.bfloat16:
            raise InvalidCall("only one half precision can be chosen", given="--float16 --bfloat16")
        if self.half_interface and not (self.float16 or self.bfloat16):
            raise InvalidCall("--half-interface needs --float16 or --bfloat16", do="add one of them")
        if self.fuse_also and self.fuse is False:
            raise InvalidCall("--fuse-also and --no-fuse exclude each other", do="remove one of them")

    @property
    def half(self) -> str | None:
        """The half precision that is asked for."""
        return "float16" if self.float16 else "bfloat16" if self.bfloat16 else None


def options_of(config: type[Any]) -> dict[str, Option]:
    """The options of a configuration by field, in order."""
    return {each.name: each.metadata["option"] for each in fields(config) if "option" in each.metadata}


def asked_of_packages(config: ExportConfig) -> set[str]:
    """The transforms of packages that options ask for."""
    return {option.asks for name, option in options_of(type(config)).items() if option.asks and getattr(config, name)}


def names_of_options() -> frozenset[str]:
    """The transforms that options ask for, which have no flag of their own."""
    return frozenset(option.asks for option in options_of(ConvertConfig).values() if option.asks)


def given_config(kind: type[Any], config: ExportConfig | None, given: Mapping[str, Any]) -> Any:
    """A configuration with fields that were given besides. Raises ``InvalidCall`` naming those that there are."""
    known = [each.name for each in fields(kind)]
    if unknown := [name for name in given if name not in known]:
        raise InvalidCall(
            f"options must be fields of {kind.__name__}", given=", ".join(unknown), available=", ".join(known)
        )
    base = {} if config is None else {each.name: getattr(config, each.name) for each in fields(config)}
    return kind(**{name: value for name, value in {**base, **given}.items() if name in known})
