"""The training API of onnxruntime-training 1.19, on plain ONNX files that any runtime can run.

``artifacts`` writes the files of a training, and the classes of ``api`` run them.
"""
