"""The public interface of the op protocol, for packages of operators.

Other kinds of packages have doors of their own beside it, and need nothing behind them: ``tenonnx.extend.transforms``,
``.backends``, ``.formats``, ``.commands``, ``.testing``, and ``.symbolic`` for arithmetic on symbolic dims.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
