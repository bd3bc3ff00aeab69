"""Building blocks of backends: compiling a graph into a program.

``check_feeds`` says whether feeds are of the types of the inputs (``FeedCheck`` for those that come again and again),
``DefaultsProgram`` lets a call feed an input that has a default, ``ShapeSpecializedProgram`` makes programs for single
shapes, ``StatefulProgram`` has what lives in a program between calls (``StateFeedCheck`` and ``Results`` are its
parts), and ``fall_back`` is numpy's program where a graph cannot run; ``FallbackProgram`` lets numpy compute a call
alone that ended in a ``RunFailure``. Inputs are made up by ``generate_feeds``.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
