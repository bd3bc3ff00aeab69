"""Execution providers of the runtime, and the devices of their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from tenonnx.extend import InvalidCall, did_you_mean
from tenonnx_onnxruntime.kernels import CPU
from tenonnx_onnxruntime.places import Place

#: A provider's name, or its name and options.
Provider = str | tuple[str, Mapping[str, Any]]

_SUFFIX = "ExecutionProvider"

#: Device types of providers, as the runtime names them; tensors of other providers are on the CPU.
DEVICES = {
    "CANNExecutionProvider": "cann",
    "CUDAExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
    "NvTensorRTRTXExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
}


def chosen(provider: Provider | None, providers: Sequence[Provider] | None) -> tuple[list[Any], Place | None]:
    """The requested providers, and the device to bind tensors to if there is a single ``provider``.

    The CPU runs nodes that ``provider`` has no kernel for. Raises ``InvalidCall`` for unavailable providers.
    """
    if provider is None:
        return _known([CPU] if providers is None else providers) or [CPU], None
    if providers is not None:
        raise InvalidCall("provider and providers were both given", do="give providers alone")
    (wanted,) = _known([provider])
    name, options = (wanted, {}) if isinstance(wanted, str) else wanted
    number = str(options.get("device_id", 0))
    if not number.isdigit():
        raise InvalidCall("the device_id of a provider is not a non-negative number", given=repr(options["device_id"]))
    place = Place(DEVICES[name], int(number)) if name in DEVICES else Place()
    return [wanted] if name == CPU else [wanted, CPU], place


def check_first(session: onnxruntime.InferenceSession, providers: Sequence[Any]) -> None:
    """Raise ``InvalidCall`` if the runtime replaced the first requested provider by the CPU."""
    name, found = _name(providers[0]), session.get_providers()
    if found[0] != name:
        raise InvalidCall(
            f"{name} found no device or lacks its libraries",
            given=f"onnxruntime {onnxruntime.__version__} took {found[0]}",
            available=", ".join(found),
            do="install the driver and libraries that this build of onnxruntime needs, or leave out the provider",
        )


def _name(provider: Any) -> str:
    return provider if isinstance(provider, str) else provider[0]


def _known(providers: Sequence[Provider] | str) -> list[Any]:
    """Providers by their full names; the suffix may be omitted, as in "cuda"."""
    known = onnxruntime.get_available_providers()
    short = {name.removesuffix(_SUFFIX).lower(): name for name in known}
    result: list[Any] = []
    for provider in [providers] if isinstance(providers, str) else providers:
        if not isinstance(provider, str) and not (isinstance(provider, tuple | list) and len(provider) == 2):
            raise InvalidCall(
                "a provider is neither a name nor a name and its options",
                given=repr(provider)[:80],
                do='("CUDAExecutionProvider", {"device_id": 1})',
            )
        name = _name(provider)
        whole = name if name in known else short.get(str(name).removesuffix(_SUFFIX).lower())
        if whole is None:
            raise InvalidCall(
                "the installed onnxruntime does not have this provider",
                given=str(name),
                available=", ".join(known),
                do=_advice(str(name), known),
            )
        result.append(whole if isinstance(provider, str) else (whole, dict(provider[1])))
    return result


def _advice(name: str, known: Sequence[str]) -> str:
    builds = {"cuda": "onnxruntime-gpu", "tensorrt": "onnxruntime-gpu", "dml": "onnxruntime-directml"}
    build = builds.get(name.removesuffix(_SUFFIX).lower())
    near = did_you_mean(name, known)
    if near and build is None:
        return near
    return f"install a build of onnxruntime that has it{f', such as {build}' if build else ''}"
