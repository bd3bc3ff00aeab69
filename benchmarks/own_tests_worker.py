"""Run test files of another tool against tenonnx-compat, in one process: ``own_tests_worker.py LOG SECONDS FILE...``.

Writes a line of JSON per test to LOG: its name, outcome and message. A test that takes more processor time than SECONDS
fails. Imported internals of the tool are placeholders that raise when they are used, so only tests that use them fail.
"""

from __future__ import annotations

import importlib
import json
import logging
import shutil
import signal
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn

import onnx.helper
import pytest

from tenonnx_compat import imports

#: Prefix of the message of a test that uses internals of the tool.
INTERNAL = "internal of the tool: "


class Internal:
    """Placeholder for an internal of a tool."""

    def __init__(self, name: str, *bases: Any) -> None:
        self.name = name

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise RuntimeError(f"{INTERNAL}{self.name}")

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"{INTERNAL}{self.name}.{name}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type]:
        return (object,)


def with_placeholders(name: str, module: types.ModuleType) -> None:
    """Make a module return a placeholder for each missing name."""
    theirs = getattr(module, "__getattr__", None)

    def missing(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if f"{name}.{attribute}" in HELPERS:
            return importlib.import_module(f"{name}.{attribute}")
        try:
            if theirs is not None:
                return theirs(attribute)
        except AttributeError:
            pass
        return Internal(f"{name}.{attribute}")

    if getattr(theirs, "__name__", "") != "missing":
        module.__getattr__ = missing  # type: ignore[method-assign]


class Redirect(imports._Redirect):
    """Import redirection with placeholders for modules and names that tenonnx-compat lacks."""

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        try:
            module = super().create_module(spec)
        except ModuleNotFoundError:
            module = types.ModuleType(spec.name)
            module.__path__ = []
            module.__spec__ = spec
            vars(module).update(HELPERS.get(spec.name, dict)())
        for name in [name for name in sys.modules if name == spec.name or name.startswith(f"{spec.name}.")]:
            with_placeholders(name, sys.modules[name])
        with_placeholders(spec.name, module)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None and module.__spec__.name in getattr(self, "_specs", {}):
            super().exec_module(module)


def ir_versions() -> dict[str, Any]:
    versions = {row[2]: row[1] for row in onnx.helper.VERSION_TABLE}
    return {"OPSET_TO_IR_VERSION": {n: versions.get(n, 10) for n in range(1, 30)}}


def tensorflow_version() -> dict[str, Any]:
    import tensorflow as tf
    from packaging.version import Version

    return {"get_tf_version": lambda: Version(tf.__version__)}


def tensorflow_graphs() -> dict[str, Any]:
    import tensorflow as tf

    return {"is_tf2": lambda: True, "tf_reset_default_graph": tf.compat.v1.reset_default_graph}


def files() -> dict[str, Any]:
    return {
        "delete_directory": lambda path: shutil.rmtree(path, ignore_errors=True),
        "get_temp_directory": tempfile.mkdtemp,
        "is_debug_mode": lambda: False,
    }


#: Internals of tools that their tests only use to set up and skip tests, by module.
HELPERS: dict[str, Callable[[], dict[str, Any]]] = {
    "skl2onnx.common._topology": ir_versions,
    "tf2onnx.constants": lambda: {"PREFERRED_OPSET": 15, "DEFAULT_TARGET": [], "POSSIBLE_TARGETS": []},
    "tf2onnx.logging": lambda: vars(logging) | {"get_verbosity_level": lambda *_: logging.WARNING},
    "tf2onnx.tf_loader": tensorflow_graphs,
    "tf2onnx.tf_utils": tensorflow_version,
    "tf2onnx.utils": files,
}


class Log:
    """pytest plugin that writes outcomes to a file and limits the processor time of a test."""

    def __init__(self, path: Path, seconds: int) -> None:
        self.path, self.seconds = path, seconds
        self.names: dict[str, str] = {}

    def write(self, **line: str) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.names[item.nodeid] = name_of(item.path, item.nodeid)
        self.write(test=self.names[item.nodeid], outcome="started")
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.write(
                test=self.names[report.nodeid],
                outcome=report.outcome,
                **self.failure(report),
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self.write(
                test=name_of(Path(report.fspath), report.nodeid),
                outcome=report.outcome,
                **self.failure(report),
            )

    def failure(self, report: pytest.TestReport | pytest.CollectReport) -> dict[str, str]:
        """The last line of a failure, and its full text."""
        crash = getattr(report.longrepr, "reprcrash", None)
        return {
            "message": crash.message if crash else str(report.longrepr or ""),
            "text": report.longreprtext + report.capstderr[-1000:],
        }


def name_of(path: Path, node: str) -> str:
    """The name of a test with that of its file, which pytest omits for files outside its root folder."""
    return f"{path.name}::{node.rpartition('.py')[2].removeprefix('::')}"


def too_long(*_: object) -> NoReturn:
    raise TimeoutError("the test takes more processor time than its limit")


def main() -> None:
    log, seconds, *files = sys.argv[1:]
    signal.signal(signal.SIGPROF, too_long)
    imports._Redirect = Redirect  # type: ignore[misc]
    imports.redirect_imports()
    sys.path[:0] = list(dict.fromkeys(str(Path(file).parent) for file in files))
    flags = [
        "--noconftest",
        "-q",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--import-mode=importlib",
        "--continue-on-collection-errors",
    ]
    sys.exit(pytest.main([*flags, "--rootdir", str(Path.cwd()), *files], plugins=[Log(Path(log), int(seconds))]))


if __name__ == "__main__":
    main()
