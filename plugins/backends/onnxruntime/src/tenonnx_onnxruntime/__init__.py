"""Runs graphs on onnxruntime."""

import os

#: onnxruntime 1.32 and newer write a device id below the home folder when they are imported, and send events: not for
#: a run that nobody asked to. ``ORT_DISABLE_TELEMETRY=0`` in the environment lets them.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
