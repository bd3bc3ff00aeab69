"""LiteRT models (.tflite): the builtin operators as ops, a reader and a writer."""
