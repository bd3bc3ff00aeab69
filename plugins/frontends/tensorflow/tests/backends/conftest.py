"""Set the Keras backend to the installed front end's; the first import decides it for the whole process."""

import importlib.util
import os

BACKEND = next((name for name in ("jax", "torch") if importlib.util.find_spec(f"tenonnx_{name}")), "tensorflow")
os.environ["KERAS_BACKEND"] = BACKEND
