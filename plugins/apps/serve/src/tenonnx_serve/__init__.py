"""A page in the browser, served on this machine: look at a model, export, compare and run it."""
