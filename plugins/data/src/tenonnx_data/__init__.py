"""One reader of data: tables, arrays, text and datasets as the feeds of a model.

``read_table(path)`` reads a file whole, for training, calibration and verification; ``batches_of(graph, data)`` gives
feeds of it, and of the loaders of other libraries; ``tenonnx_data.readers`` cut files of any size into slices, for
scoring. ``bind`` finds the columns of every input for all.
"""

from tenonnx_data.array_files import read_members
from tenonnx_data.binding import Binding, Bound, Field, bind
from tenonnx_data.feeding import Data, batches_of, cut
from tenonnx_data.fields import NUMBER, field_parser
from tenonnx_data.labels import ClassNames, read_labels
from tenonnx_data.reading import FORMATS, is_table, read_table
from tenonnx_data.table import Table

__all__ = [
    "FORMATS",
    "NUMBER",
    "Binding",
    "Bound",
    "ClassNames",
    "Data",
    "Field",
    "Table",
    "batches_of",
    "bind",
    "cut",
    "field_parser",
    "is_table",
    "read_labels",
    "read_members",
    "read_table",
]
