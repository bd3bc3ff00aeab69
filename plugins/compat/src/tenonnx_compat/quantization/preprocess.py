"""Entry point of ``python -m tenonnx_compat.quantization.preprocess --input in.onnx --output out.onnx``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import tenonnx as tx
from tenonnx_compat.quantization.shape_inference import quant_pre_process
from tenonnx_compat.refusal import announce_command


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exits with 1 if the model cannot be read or written."""
    parser = argparse.ArgumentParser(description="Simplify a model and infer its types before a quantization.")
    parser.add_argument("--input", required=True, help="model to read")
    parser.add_argument("--output", required=True, help="file to write")
    for flag in ("skip_optimization", "skip_onnx_shape", "skip_symbolic_shape"):
        parser.add_argument(f"--{flag}", type=bool, default=False)
    for flag in ("auto_merge", "guess_output_rank", "save_as_external_data", "all_tensors_to_one_file"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--int_max", type=int, default=2**31 - 1, help="without effect")
    parser.add_argument("--verbose", type=int, default=0, help="without effect")
    parser.add_argument("--external_data_location")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024)
    options = vars(parser.parse_args(arguments))
    announce_command("preprocess", "onnxruntime.quantization.quant_pre_process", "tenonnx convert IN -o OUT --simplify")
    try:
        quant_pre_process(options.pop("input"), options.pop("output"), **options)
    except (tx.TenonnxError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
