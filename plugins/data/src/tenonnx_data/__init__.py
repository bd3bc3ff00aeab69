"""One reader of data: tables, arrays, text and datasets as the feeds of a model.

``read_table(path)`` reads a file whole, for training, calibration and verification; ``batches_of(graph, data)`` gives
feeds of it, and of the loaders of other libraries; ``tenonnx_data.readers`` cut files of any size into slices, for
scoring. ``bind`` finds the columns of every input for all.
"""

from tenonnx.extend import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
