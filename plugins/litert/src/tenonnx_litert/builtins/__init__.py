"""The builtin operators of LiteRT as ops of the domain ``tflite``, with channels last.

Names, inputs and attributes follow the schema, for example ``fused_activation_function``. An op defined without
``options`` has no table of options in a file.
"""
