"""Building blocks of backends: compiling a graph into a program.

``check_feeds`` checks the types of feeds (``FeedCheck`` for repeated calls). ``DefaultsProgram`` accepts feeds for
inputs that have a default. ``ShapeSpecializedProgram`` compiles a program for each combination of shapes.
``StatefulProgram`` keeps state between calls (``StateFeedCheck`` and ``Results`` are its parts). ``fall_back`` compiles
a graph for numpy if the backend cannot run it; ``FallbackProgram`` reruns only calls that raise ``RunFailure``.
``generate_feeds`` draws random inputs.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
