"""Where each name is defined; read by type checkers, and when one is first used."""

from tenonnx.conversion.options import Option as Option
from tenonnx.conversion.options import option as option
from tenonnx.conversion.options import options_of as options_of
