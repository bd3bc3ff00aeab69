"""Columns of tables as arrays, and arrays as columns."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from tenonnx import DType
from tenonnx_data.columns import elements, number_column

PROGRAM = """
import sys
import numpy as np
from tenonnx import DType
from tenonnx_data.columns import elements, number_column
column = number_column(np.arange(5, dtype=np.float32))
assert elements(column, DType.float64, False, {}).tolist() == [0, 1, 2, 3, 4]
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "uint64", "float16", "float32", "float64"])
def test_numbers_become_a_column_and_come_back(name):
    dtype = DType[name]
    array = np.asarray([0, 1, 1, 0, 1], dtype.numpy)
    for given in (array, array[::2], array[:0]):
        column = number_column(given)
        assert column.type == pa.array(given).type
        assert column.to_pylist() == given.tolist()
        back = elements(column.slice(min(1, len(given))), dtype, False, reasons := {})
        np.testing.assert_array_equal(back, given[1:])
        assert back.dtype == dtype.numpy
        assert not reasons


def test_numbers_are_converted_without_pandas(tmp_path):
    """pyarrow imports pandas, if it is there, for conversions of its own: that takes longer than a small job."""
    (tmp_path / "pandas.py").write_text("__version__ = '0'\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
