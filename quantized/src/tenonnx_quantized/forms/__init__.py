"""Forms of one quantised model, each a transform: QDQ, QOperator, and plain floats."""
