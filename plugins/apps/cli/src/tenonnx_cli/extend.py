"""Building blocks of commands: shared options and output."""

from typing import TYPE_CHECKING, Any

from tenonnx_cli import FAILED, INTERRUPTED, REFUSED
from tenonnx_cli.command import Command
from tenonnx_cli.convert import SUFFIXES
from tenonnx_cli.devices import DeviceOptions, device_options
from tenonnx_cli.model_size import model_size, say_sizes
from tenonnx_cli.options import (
    FILE,
    columns_option,
    config_options,
    costs_option,
    gathered,
    in_order,
    input_columns,
    input_options,
    json_option,
    load_model,
    model_argument,
    names_like,
    opened_for_reading,
    overwrite_option,
    quiet_option,
    target_options,
    verbosity_options,
    version_options,
)
from tenonnx_cli.output import complain, data_file, is_quiet, plural, results_aside, say, say_json, say_table, working
from tenonnx_cli.parts import opened, output_option
from tenonnx_cli.python_model import check_reading, is_made, made_options

if TYPE_CHECKING:
    from tenonnx_cli.arrays import read_feeds

__all__ = [
    "FAILED",
    "FILE",
    "INTERRUPTED",
    "REFUSED",
    "SUFFIXES",
    "Command",
    "DeviceOptions",
    "check_reading",
    "columns_option",
    "complain",
    "config_options",
    "costs_option",
    "data_file",
    "device_options",
    "gathered",
    "in_order",
    "input_columns",
    "input_options",
    "is_made",
    "is_quiet",
    "json_option",
    "load_model",
    "made_options",
    "model_argument",
    "model_size",
    "names_like",
    "opened",
    "opened_for_reading",
    "output_option",
    "overwrite_option",
    "plural",
    "quiet_option",
    "read_feeds",
    "results_aside",
    "say",
    "say_json",
    "say_sizes",
    "say_table",
    "target_options",
    "verbosity_options",
    "version_options",
    "working",
]


def __getattr__(name: str) -> Any:
    """Import the reader of arrays lazily with numpy, which help and completion do not need."""
    if name != "read_feeds":
        raise AttributeError(f"{__name__} has no {name!r}")
    from tenonnx_cli.arrays import read_feeds

    return read_feeds
