"""The builtin operators of LiteRT as ops of the domain ``tflite``, with channels last.

Names, inputs and attributes are those of the schema, ``fused_activation_function`` for example. An op without the
attribute ``options`` has no table of options in a file.
"""
