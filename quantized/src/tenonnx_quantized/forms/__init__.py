"""Forms of one quantized model, each a transform: QDQ, QOperator, and plain floats."""
