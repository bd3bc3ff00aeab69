"""Where each name is defined; read by type checkers, and when one is first used."""

from tenonnx.backend.base import Backend as Backend
from tenonnx.backend.by_shape import ShapedProgram as ShapedProgram
from tenonnx.backend.compiling import compile_graph as compile_graph
from tenonnx.backend.feeds import FeedCheck as FeedCheck
from tenonnx.backend.feeds import check_feeds as check_feeds
from tenonnx.backend.input_defaults import Defaults as Defaults
from tenonnx.backend.input_defaults import DefaultsProgram as DefaultsProgram
from tenonnx.backend.rescue import RescuedProgram as RescuedProgram
from tenonnx.backend.rescue import RunFailure as RunFailure
from tenonnx.backend.rescue import fall_back as fall_back
from tenonnx.backend.state import Results as Results
from tenonnx.backend.state import StateFeedCheck as StateFeedCheck
from tenonnx.backend.state import StatefulProgram as StatefulProgram
from tenonnx.backend.state import Turn as Turn
from tenonnx.checks.generate import generate_feeds as generate_feeds
from tenonnx.graph.graph import OPTIONAL_INPUTS_IR as OPTIONAL_INPUTS_IR
from tenonnx.graph.program import Bindable as Bindable
from tenonnx.graph.program import Program as Program
from tenonnx.transforms.retarget import retarget_to as retarget_to
from tenonnx.transforms.target import Target as Target
from tenonnx.transforms.target import target_for as target_for
