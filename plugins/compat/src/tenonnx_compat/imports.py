"""Redirection of imports of other tools to this package, in one process."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

#: The modules of tools and their replacements; submodules are replaced by submodules of the same name.
MODULES = {
    "onnxsim": "tenonnx_compat.onnxsim",
    "onnxslim": "tenonnx_compat.onnxslim",
    "skl2onnx": "tenonnx_compat.skl2onnx",
    "onnx2torch": "tenonnx_compat.onnx2torch",
    "tf2onnx": "tenonnx_compat.tf2onnx",
    "onnxruntime.quantization": "tenonnx_compat.quantization",
    "onnxruntime.training": "tenonnx_compat.training",
}

#: Functions replaced in modules that otherwise stay: (module, function), and the module with the replacement.
FUNCTIONS = {
    ("onnx.version_converter", "convert_version"): "tenonnx_compat.version_converter",
    ("torch.onnx", "export"): "tenonnx_compat.torch_onnx",
}


class _Redirect(MetaPathFinder, Loader):
    """Import hook that imports the replacements in ``MODULES``, and patches the modules in ``FUNCTIONS``."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if own_name(name) is not None:
            return ModuleSpec(name, self, is_package=True)
        if any(module == name for module, _ in FUNCTIONS):
            return self._patched(name)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        own = own_name(spec.name) or ""
        try:
            module = importlib.import_module(own)
        except ModuleNotFoundError as error:
            if error.name is None or not own.startswith(error.name):
                raise
            raise ModuleNotFoundError(
                f"tenonnx-compat has no {spec.name}: it translates the public functions of tools, not their internals",
                name=spec.name,
            ) from None
        self._specs = {**getattr(self, "_specs", {}), spec.name: module.__spec__}
        for name in [name for name in sys.modules if name.startswith(f"{own}.")]:
            sys.modules.setdefault(spec.name + name[len(own) :], sys.modules[name])
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import system has just replaced."""
        if module.__spec__ is not None:
            module.__spec__ = self._specs[module.__spec__.name]

    def _patched(self, name: str) -> ModuleSpec | None:
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _replace_functions(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def own_name(name: str) -> str | None:
    """The replacement's name for a module of a tool; None for other modules."""
    for theirs, ours in MODULES.items():
        if name == theirs or name.startswith(f"{theirs}."):
            return ours + name[len(theirs) :]
    return None


def _replace_functions(module: ModuleType) -> None:
    for (name, function), ours in FUNCTIONS.items():
        if name == module.__name__:
            setattr(module, function, _unless_called_by_ours(getattr(module, function), ours))


def _unless_called_by_ours(original: Callable[..., Any], ours: str) -> Callable[..., Any]:
    """Wrap ``original``: tenonnx's packages still call it, all others the function of that name in module ``ours``."""

    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("tenonnx"):
            return original(*arguments, **options)
        return getattr(importlib.import_module(ours), original.__name__)(*arguments, **options)

    return call


def redirect_imports() -> None:
    """Redirect later imports of the tools in this process to the modules of this package."""
    for name in [name for name in sys.modules if own_name(name) is not None]:
        del sys.modules[name]
    for name in {module for module, _ in FUNCTIONS} & sys.modules.keys():
        _replace_functions(sys.modules[name])
    sys.meta_path.insert(0, _Redirect())
