"""Quantising a model of floats: ranges of activations, codes of weights, and the graph that holds them."""
