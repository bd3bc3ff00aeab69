"""Floor 1: the operator protocol, tracing, evaluation and type inference."""
