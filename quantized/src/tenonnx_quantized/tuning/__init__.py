"""Quantization of float models: ranges of activations, quantized weights, and the resulting graph."""
