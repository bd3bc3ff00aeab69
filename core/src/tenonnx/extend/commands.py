"""What a command is made of: options that all commands share, and how they print."""

from tenonnx.cli.arrays import read_archive
from tenonnx.cli.convert import SUFFIXES
from tenonnx.cli.options import json_option, load_model, model_argument, target_options, version_options
from tenonnx.cli.output import complain, plural, say, say_json, working

__all__ = [
    "SUFFIXES",
    "complain",
    "json_option",
    "load_model",
    "model_argument",
    "plural",
    "read_archive",
    "say",
    "say_json",
    "target_options",
    "version_options",
    "working",
]
