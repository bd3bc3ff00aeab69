"""Quantizing a model of floats: ranges of activations, quantized values of weights, and the graph that holds them."""
