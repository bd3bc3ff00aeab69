"""What a command is made of: options that all commands share, and how they print."""

from tenonnx_cli import FAILED, INTERRUPTED, REFUSED
from tenonnx_cli.arrays import read_archive, read_feeds
from tenonnx_cli.convert import SUFFIXES
from tenonnx_cli.options import (
    config_options,
    gathered,
    input_options,
    json_option,
    load_model,
    model_argument,
    target_options,
    version_options,
)
from tenonnx_cli.output import complain, plural, say, say_json, say_table, working
from tenonnx_cli.tables import is_table, parse_column, read_columns, table_feeds

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "REFUSED",
    "SUFFIXES",
    "complain",
    "config_options",
    "gathered",
    "input_options",
    "is_table",
    "json_option",
    "load_model",
    "model_argument",
    "parse_column",
    "plural",
    "read_archive",
    "read_columns",
    "read_feeds",
    "say",
    "say_json",
    "say_table",
    "table_feeds",
    "target_options",
    "version_options",
    "working",
]
