"""One reader of data: tables, arrays, text and datasets as the feeds of a model.

``read_table(path)`` reads a file whole, for training, calibration and verification; ``tenonnx_data.readers`` cut files
of any size into slices, for scoring. ``bind`` finds the columns of every input for both.
"""

from tenonnx_data.array_files import read_members
from tenonnx_data.binding import Binding, Bound, Field, bind
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
    "Field",
    "Table",
    "bind",
    "field_parser",
    "is_table",
    "read_labels",
    "read_members",
    "read_table",
]
