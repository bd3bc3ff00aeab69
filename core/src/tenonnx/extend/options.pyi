"""Public names and the modules that define them."""

from tenonnx_convert.options import Option as Option
from tenonnx_convert.options import option as option
from tenonnx_convert.options import options_of as options_of
