"""Trains graphs: forward, backward and update are one graph of plain ops, which any backend runs."""

from tenonnx.extend import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
