"""Baseline: the same work with pyarrow and onnxruntime in one process, file by file.

``python plain.py CASE MODEL INPUT OUTPUT THREADS BATCH``; 0 threads is onnxruntime's default.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
from pyarrow import parquet


def main() -> None:
    case, model, input, output, threads, batch = sys.argv[1:]
    if threads == "1":
        pa.set_cpu_count(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    Path(output).mkdir(parents=True)
    if case == "images":
        _images(session, Path(input), Path(output), int(batch))
        return
    for path in sorted(Path(input).glob("*.parquet"), key=lambda path: int(path.stem)):
        batches = parquet.ParquetFile(path).iter_batches(int(batch), use_threads=False)
        _write(Path(output) / path.name, (_scored(session, rows) for rows in batches))


def _write(path: Path, batches: Any) -> None:
    writer = None
    for batch in batches:
        writer = writer or parquet.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def _scored(session: Any, rows: Any) -> Any:
    names = [each.name for each in session.get_inputs()]
    if len(names) == 1:
        columns = [rows.column(name).to_numpy() for name in rows.schema.names if name != "id"]
        feeds = {names[0]: np.stack(columns, axis=1)}
    else:
        feeds = {}
        for each in session.get_inputs():
            column = rows.column(each.name)
            filled = column.fill_null("" if "string" in each.type else np.nan)
            values = filled.to_numpy(zero_copy_only=False)
            feeds[each.name] = values.astype(object if "string" in each.type else np.float32, copy=False)[:, None]
    return _batch({"id": rows.column("id")}, session.run(None, feeds))


def _batch(kept: dict[str, Any], outputs: Any) -> Any:
    label, probabilities = outputs[0], outputs[1]
    each = {f"p{k}": pa.array(np.ascontiguousarray(probabilities[:, k])) for k in range(probabilities.shape[1])}
    return pa.RecordBatch.from_pydict({**kept, "label": pa.array(label), **each})


def _images(session: Any, input: Path, output: Path, batch: int) -> None:
    from PIL import Image

    paths = sorted(input.rglob("*.jpg"), key=lambda path: int(path.stem))
    found = []
    for at in range(0, len(paths), batch):
        some = paths[at : at + batch]
        pixels = [np.asarray(Image.open(path).convert("RGB"), np.float32) / np.float32(255) for path in some]
        outputs = session.run(None, {"image": np.stack(pixels).transpose(0, 3, 1, 2)})
        found.append(_batch({"path": [str(path.absolute()) for path in some]}, outputs))
    _write(output / "0.parquet", found)


if __name__ == "__main__":
    main()
