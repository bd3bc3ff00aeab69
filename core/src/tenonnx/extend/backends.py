"""What a backend is made of: it compiles a graph into a program.

``check_feeds`` says whether feeds are of the types of the inputs (``FeedCheck`` for those that come again and again),
``DefaultsProgram`` lets a call feed an input that has a default, ``ShapedProgram`` makes programs for single shapes,
``StatefulProgram`` has what lives in a program between calls (``StateFeedCheck`` and ``Results`` are its parts), and
``fall_back`` is numpy's program where a graph cannot run; ``RescuedProgram`` lets numpy compute a call alone that
ended in a ``RunFailure``. Inputs are made up by ``generate_feeds``.
"""

from tenonnx.backend.base import Backend
from tenonnx.backend.by_shape import ShapedProgram
from tenonnx.backend.compiling import compile_graph
from tenonnx.backend.feeds import FeedCheck, check_feeds
from tenonnx.backend.input_defaults import Defaults, DefaultsProgram
from tenonnx.backend.rescue import RescuedProgram, RunFailure, fall_back
from tenonnx.backend.state import Results, StateFeedCheck, StatefulProgram, Turn
from tenonnx.checks.generate import generate_feeds
from tenonnx.graph.graph import OPTIONAL_INPUTS_IR
from tenonnx.graph.program import Bindable, Program
from tenonnx.transforms.retarget import retarget_to
from tenonnx.transforms.target import Target, target_for

__all__ = [
    "OPTIONAL_INPUTS_IR",
    "Backend",
    "Bindable",
    "Defaults",
    "DefaultsProgram",
    "FeedCheck",
    "Program",
    "RescuedProgram",
    "Results",
    "RunFailure",
    "ShapedProgram",
    "StateFeedCheck",
    "StatefulProgram",
    "Target",
    "Turn",
    "check_feeds",
    "compile_graph",
    "fall_back",
    "generate_feeds",
    "retarget_to",
    "target_for",
]
