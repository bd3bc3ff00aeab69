"""The training API of onnxruntime-training 1.19, by files of plain ONNX that any runtime drives.

``artifacts`` writes the files of a training, and the classes of ``api`` drive them.
"""
