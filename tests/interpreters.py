"""Fast isolated runs of Python programs, in forks of one warm interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

#: Code of the warm interpreter. It imports the modules of our packages without registering them.
_PARENT = """
import importlib.metadata, io, json, os, runpy, sys, tempfile, traceback
import onnxruntime
import tenonnx_cli.plugins, tenonnx.formats.onnx.reader, tenonnx.transforms.retarget

for group in tenonnx.registry.discovery.GROUPS:
    for entry in importlib.metadata.entry_points(group=group):
        entry.load()
tenonnx.registry.discovery._everything.cache_clear()  # a child has a folder more

def child(request, out, err):
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.environ.update(request["environment"])
    if request["path"]:
        sys.path.insert(0, request["path"])
        os.chdir(request["path"])
    sys.argv = [request["program"], *request["arguments"]]
    try:
        if request["program"] == "tenonnx":
            runpy.run_module("tenonnx", run_name="__main__", alter_sys=True)
        else:
            exec(compile(request["program"], "program.py", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

for line in sys.stdin:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = os.fork()
        if not process:
            child(json.loads(line), out, err)
        _, status = os.waitpid(process, 0)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode())
        print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)
"""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Interpreters:
    """Runs a program, or the command line as ``tenonnx``, with a folder in front of ``sys.path``."""

    def __init__(self) -> None:
        self.parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )

    def __call__(self, path: str, program: str, *arguments: str, **environment: str) -> Done:
        request = {"path": path, "program": program, "arguments": arguments, "environment": environment}
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.write(json.dumps(request) + "\n")
        self.parent.stdin.flush()
        return Done(*json.loads(self.parent.stdout.readline()))

    def close(self) -> None:
        self.parent.communicate()
