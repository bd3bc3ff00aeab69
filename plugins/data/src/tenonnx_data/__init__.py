"""Data readers: tables, arrays, text and datasets as feeds of a model.

``read_table(path)`` reads a whole file, for training, calibration and verification. ``batches_of(graph, data)`` yields
feeds from files and from data loaders of other libraries. ``tenonnx_data.readers`` split files of any size into slices,
for scoring. All of them use ``bind`` to map columns to inputs.
"""

from tenonnx.extend import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
