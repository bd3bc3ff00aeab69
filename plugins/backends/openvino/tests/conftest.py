"""Without OpenVINO nothing here is collected: these tests have an environment of their own, see README.md."""

import importlib.util

collect_ignore_glob = ["*"] if importlib.util.find_spec("openvino") is None else []
