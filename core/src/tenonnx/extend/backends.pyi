"""Public names and the modules that define them."""

from tenonnx.graph.graph import OPTIONAL_INPUTS_IR as OPTIONAL_INPUTS_IR
from tenonnx.graph.program import Bindable as Bindable
from tenonnx.graph.program import Program as Program
from tenonnx.transforms.retarget import retarget_to as retarget_to
from tenonnx.transforms.target import Target as Target
from tenonnx.transforms.target import target_for as target_for
from tenonnx_convert.verifying.generate import generate_feeds as generate_feeds
from tenonnx_run.base import Backend as Backend
from tenonnx_run.compiling import compile_graph as compile_graph
from tenonnx_run.fallback import FallbackProgram as FallbackProgram
from tenonnx_run.fallback import RunFailure as RunFailure
from tenonnx_run.fallback import fall_back as fall_back
from tenonnx_run.feeds import FeedCheck as FeedCheck
from tenonnx_run.feeds import check_feeds as check_feeds
from tenonnx_run.input_defaults import Defaults as Defaults
from tenonnx_run.input_defaults import DefaultsProgram as DefaultsProgram
from tenonnx_run.shape_specialized import ShapeSpecializedProgram as ShapeSpecializedProgram
from tenonnx_run.slots import Slots as Slots
from tenonnx_run.state import Results as Results
from tenonnx_run.state import StateFeedCheck as StateFeedCheck
from tenonnx_run.state import StatefulProgram as StatefulProgram
from tenonnx_run.state import Turn as Turn
from tenonnx_run.written_file import file_of as file_of
from tenonnx_run.written_file import written_to as written_to
