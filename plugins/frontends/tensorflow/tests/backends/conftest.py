"""Keras computes on the backend whose front end is installed; its first import decides that for the whole process."""

import importlib.util
import os

BACKEND = next((name for name in ("jax", "torch") if importlib.util.find_spec(f"tenonnx_{name}")), "tensorflow")
os.environ["KERAS_BACKEND"] = BACKEND
