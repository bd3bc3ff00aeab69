"""KServe services are validated against KServe's schema; PyYAML is installed with Ray."""

import importlib
import json
import re
from pathlib import Path

import pytest

from tenonnx_score.layouts.kserve import service

TYPES = json.loads((Path(__file__).parents[1] / "data" / "kserve.json").read_text())["types"]
PLAIN = {"str": str, "bool": bool, "int": int}


def check(value, kind, where):
    """Raise ``AssertionError`` for a value that violates the schema; for foreign types only the kind is checked."""
    if kind in TYPES:
        assert isinstance(value, dict), where
        fields = TYPES[kind]["fields"]
        assert set(TYPES[kind]["required"]) <= set(value) <= set(fields), where
        for name, inner in value.items():
            check(inner, fields[name], f"{where}.{name}")
    else:
        expected = PLAIN.get(kind, list if re.match("list", kind) else dict)
        assert isinstance(value, expected), f"{where}: {value!r} is no {kind}"


@pytest.mark.parametrize("name", ["net", "a", "n1-x", "true", "null", "on"])
def test_a_service_is_one_of_kserve(name):
    yaml = importlib.import_module("yaml")
    read = yaml.safe_load(service(name))
    check(read, "V1beta1InferenceService", "service")
    assert (read["apiVersion"], read["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert read["metadata"] == {"name": name}
    assert read["spec"]["predictor"]["model"]["storageUri"] == f"pvc://{name}/models"


@pytest.mark.parametrize("change", [("version", 1), ("modelFormat", None), ("storageUri", "storage_uri")])
def test_invalid_kserve_fields_are_found(change):
    yaml = importlib.import_module("yaml")
    read = yaml.safe_load(service("net"))
    model = read["spec"]["predictor"]["model"]
    if change[0] == "version":
        model["modelFormat"]["version"] = 1
    else:
        result = model.pop(change[0])
        model |= {change[1]: result} if change[1] else {}
    with pytest.raises(AssertionError):
        check(read, "V1beta1InferenceService", "service")
