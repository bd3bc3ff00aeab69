"""Runs graphs on onnxruntime."""

import os

#: onnxruntime 1.32 and newer write a device id into the home folder on import and send telemetry. This is disabled
#: unless ``ORT_DISABLE_TELEMETRY=0`` is set in the environment.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
