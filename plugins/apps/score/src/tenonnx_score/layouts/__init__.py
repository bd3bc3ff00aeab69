"""Folder layouts of model servers: ``tenonnx convert --layout triton`` or ``kserve``."""
