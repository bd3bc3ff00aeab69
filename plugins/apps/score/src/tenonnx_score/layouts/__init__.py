"""Folders that model servers take: ``tenonnx convert --layout triton`` or ``kserve``."""
