"""LiteRT models (.tflite): the builtin operators as ops, and a writer."""
