"""CSV files with and without pyarrow: the same values, and the same rejected fields."""

import itertools

import numpy as np
import pytest

from tenonnx.extend import DType, InvalidCall
from tenonnx_data.arrow_files import ArrowTable
from tenonnx_data.fields import MISSING
from tenonnx_data.text_files import CsvTable

FIELDS = (
    *MISSING,
    *("0", "-0", "+1", " 7 ", "007", "1.", ".5", "1e3", "1E-3", "3.0", "2.5", "1_000", "0x10", "1e400", "-1e400"),
    *("inf", "-Infinity", "NAN", "9007199254740993", "9223372036854775808", "255", "-129", "1e39", "65504", "70000"),
    *("true", "False", "TRUE", "yes", "x", "1,5", "١٢", "²", "--1", "1e", "e5", ".", "1 2", "\u00a04"),
)
DTYPES = (DType.float32, DType.float64, DType.float16, DType.int64, DType.int8, DType.uint8, DType.bool, DType.string)


def outcome(read, name, dtype):
    """The values of a reader, or None if it rejects them."""
    try:
        return read.column(name, dtype)
    except InvalidCall:
        return None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_field_is_read_alike(tmp_path, dtype):
    path = tmp_path / "rows.csv"
    for field in FIELDS:
        path.write_text(f'a,b\n1,2\n1,"{field}"\n', "utf-8")
        one, other = (outcome(reader(str(path)), "b", dtype) for reader in (CsvTable, ArrowTable))
        assert (one is None) == (other is None), field
        if one is not None:
            np.testing.assert_array_equal(one, other, err_msg=repr(field))


@pytest.mark.parametrize(
    "text",
    [
        "a;b\n1,5;2\n",
        "a\tb\n1\t2\n",
        '"a;x",b\n1,2\n',
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\n1,2",
        '\ufeffa,b\n1,"2\n3"\n',
        "a\n1\n\n2\n",
        "a,b\n1,2\n\n3,4\n",
        "a,b\n1,2,3\n",
        "a,b\n1\n",
        "a,a\n1,2\n",
    ],
)
def test_each_file_is_cut_alike(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode("utf-8"))
    result = []
    for reader in (CsvTable, ArrowTable):
        try:
            table = reader(str(path))
            result.append({name: table.column(name, DType.string).tolist() for name in table.names})
        except InvalidCall:
            result.append(None)
    for one, other in itertools.pairwise(result):
        assert one == other
