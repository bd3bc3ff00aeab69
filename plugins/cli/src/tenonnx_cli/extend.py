"""What a command is made of: options that all commands share, and how they print."""

from tenonnx_cli import FAILED, INTERRUPTED, REFUSED
from tenonnx_cli.arrays import read_archive, read_feeds
from tenonnx_cli.convert import SUFFIXES
from tenonnx_cli.devices import DeviceOptions, device_options
from tenonnx_cli.fields import field_parser
from tenonnx_cli.options import (
    FILE,
    config_options,
    gathered,
    in_order,
    input_options,
    json_option,
    load_model,
    model_argument,
    names_like,
    opened_for_reading,
    target_options,
    version_options,
)
from tenonnx_cli.output import complain, plural, results_aside, say, say_json, say_table, working
from tenonnx_cli.parts import opened, output_option
from tenonnx_cli.tables import is_table, parse_column, read_columns, table_feeds

__all__ = [
    "FAILED",
    "FILE",
    "INTERRUPTED",
    "REFUSED",
    "SUFFIXES",
    "DeviceOptions",
    "complain",
    "config_options",
    "device_options",
    "field_parser",
    "gathered",
    "in_order",
    "input_options",
    "is_table",
    "json_option",
    "load_model",
    "model_argument",
    "names_like",
    "opened",
    "opened_for_reading",
    "output_option",
    "parse_column",
    "plural",
    "read_archive",
    "read_columns",
    "read_feeds",
    "results_aside",
    "say",
    "say_json",
    "say_table",
    "table_feeds",
    "target_options",
    "version_options",
    "working",
]
