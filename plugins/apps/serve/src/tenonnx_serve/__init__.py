"""Browser page served on this machine: look at a model, export, compare and run it."""
