"""The operators of Acme."""

from tenonnx.extend import hookimpl, op
from tenonnx_standard import sqrt

#: The version of the tenonnx.extend API that this package needs; an older tenonnx rejects it.
api = 1


@op("Squareplus", domain="com.acme", since=1)
def squareplus(X, *, b=4.0):
    """A smooth ReLU without exponentials: ``(X + sqrt(X * X + b)) / 2`` (Barron 2021, arXiv:2112.11687)."""
    return (X + sqrt(X * X + b)) / 2.0


@hookimpl
def register_ops(registry):
    registry.add(squareplus)
