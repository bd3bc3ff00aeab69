"""The same work by pandas and onnxruntime in one process, file by file.

``python plain.py CASE MODEL INPUT OUTPUT THREADS BATCH``; threads are 0 for what onnxruntime takes by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas


def main() -> None:
    case, model, input, output, threads, batch = sys.argv[1:]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    Path(output).mkdir(parents=True)
    if case == "images":
        _images(session, Path(input), Path(output), int(batch))
        return
    for path in sorted(Path(input).glob("*.parquet"), key=lambda path: int(path.stem)):
        frame = pandas.read_parquet(path)
        found = [_scored(session, frame.iloc[at : at + int(batch)]) for at in range(0, len(frame), int(batch))]
        pandas.concat(found).to_parquet(Path(output) / path.name, index=False)


def _scored(session: Any, rows: Any) -> Any:
    names = [each.name for each in session.get_inputs()]
    if len(names) == 1:
        feeds = {names[0]: rows.drop(columns="id").to_numpy(np.float32)}
    else:
        feeds = {}
        for each in session.get_inputs():
            column = rows[each.name]
            values = column.fillna("").to_numpy(object) if "string" in each.type else column.to_numpy(np.float32)
            feeds[each.name] = values[:, None]
    return _frame({"id": rows["id"].to_numpy()}, session.run(None, feeds))


def _frame(kept: dict[str, Any], outputs: Any) -> Any:
    label, probabilities = outputs[0], outputs[1]
    each = {f"p{k}": probabilities[:, k] for k in range(probabilities.shape[1])}
    return pandas.DataFrame({**kept, "label": label, **each})


def _images(session: Any, input: Path, output: Path, batch: int) -> None:
    from PIL import Image

    paths = sorted(input.rglob("*.jpg"), key=lambda path: int(path.stem))
    found = []
    for at in range(0, len(paths), batch):
        some = paths[at : at + batch]
        pixels = [np.asarray(Image.open(path).convert("RGB"), np.float32) / np.float32(255) for path in some]
        outputs = session.run(None, {"image": np.stack(pixels).transpose(0, 3, 1, 2)})
        found.append(_frame({"path": [str(path.absolute()) for path in some]}, outputs))
    pandas.concat(found).to_parquet(output / "0.parquet", index=False)


if __name__ == "__main__":
    main()
