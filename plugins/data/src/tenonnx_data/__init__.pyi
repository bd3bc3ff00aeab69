"""Public names and the modules that define them."""

from tenonnx_data.array_files import read_members as read_members
from tenonnx_data.binding import Binding as Binding
from tenonnx_data.binding import Bound as Bound
from tenonnx_data.binding import Field as Field
from tenonnx_data.binding import bind as bind
from tenonnx_data.feeding import Data as Data
from tenonnx_data.feeding import batches_of as batches_of
from tenonnx_data.feeding import cut as cut
from tenonnx_data.fields import NUMBER as NUMBER
from tenonnx_data.fields import field_parser as field_parser
from tenonnx_data.labels import ClassNames as ClassNames
from tenonnx_data.labels import read_labels as read_labels
from tenonnx_data.reading import FORMATS as FORMATS
from tenonnx_data.reading import is_table as is_table
from tenonnx_data.reading import read_table as read_table
from tenonnx_data.table import Table as Table
