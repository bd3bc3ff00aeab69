"""Methods of post-training quantization, each from its paper.

A method that rounds weights is a function of a ``Layer``; one that rescales the model beforehand is a function of a
``Rescaling`` and the settings.
"""
