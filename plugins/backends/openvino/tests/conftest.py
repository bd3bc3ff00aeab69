"""Skips collection without OpenVINO: these tests need a separate environment, see README.md."""

import importlib.util

collect_ignore_glob = ["*"] if importlib.util.find_spec("openvino") is None else []
