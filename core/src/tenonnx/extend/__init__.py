"""The public interface of the op protocol, for packages of operators.

Other kinds of packages use separate modules: ``tenonnx.extend.transforms``, ``.backends``, ``.formats``, ``.commands``,
``.testing``, and ``.symbolic`` for arithmetic on symbolic dims.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
