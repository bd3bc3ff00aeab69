"""Entry point of ``python -m tenonnx_compat run SCRIPT``."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from tenonnx_compat.imports import FUNCTIONS, MODULES, own_name, redirect_imports


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a script or a module with its imports of other tools redirected to tenonnx-compat."""
    parser = argparse.ArgumentParser(
        prog="python -m tenonnx_compat",
        description="Run a Python program whose imports of other ONNX tools are answered by tenonnx.",
        epilog=f"answered: {', '.join([*MODULES, *('.'.join(each) for each in FUNCTIONS)])}",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="run")
    run = commands.add_parser("run", help="run a script, or with -m a module")
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module, such as onnxsim")
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")
    options = parser.parse_args(arguments)
    if not options.module and not Path(options.script).is_file():
        print(f'cannot read "{options.script}": no such file', file=sys.stderr)
        sys.exit(2)
    redirect_imports()
    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(own_name(options.script) or options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(options.script).resolve().parent)
        runpy.run_path(options.script, run_name="__main__")


main()
