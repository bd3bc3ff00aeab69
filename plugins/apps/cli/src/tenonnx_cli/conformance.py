"""``tenonnx plugins test``: the conformance tests of a package or domain."""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path

import click

from tenonnx_cli import FAILED, REFUSED


@click.command("test")
@click.argument("name", required=False)
@click.option(
    "--examples", type=click.IntRange(min=1), default=10, show_default=True, help="Number of random calls of each case."
)
@click.option("--report", metavar="FILE", help="Write the results as JSON, the certificate of a package.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draw other calls than those of seed 0."
)
@click.option("--op", metavar="TYPE", help="Only the tests of this op.")
@click.option("-k", "selected", metavar="WORDS", help="Only the tests whose names match this pytest -k expression.")
def command(
    name: str | None, examples: int, report: str | None, seed: int, op: str | None, selected: str | None
) -> int:
    """Run the conformance tests of NAME, a package or a domain; by default of the project in this folder.

    Needs tenonnx-testing. Exit code 1 if a test fails.
    """
    from tenonnx.tools import import_optional

    kit = import_optional("tenonnx_testing.suite", "run conformance tests")
    wanted = name or kit.project_of(Path.cwd())
    kit.conformance(wanted, op=op)  # raises for an unknown name
    options = [f"--tenonnx-examples={examples}", *([f"--tenonnx-report={report}"] if report else [])]
    options += [f"--tenonnx-seed={seed}", "--tenonnx-table", *(["-k", selected] if selected else [])]
    with tempfile.TemporaryDirectory(prefix="tenonnx-test-") as folder:
        file = Path(folder, "test_conformance.py")
        file.write_text(
            f"from tenonnx_testing import conformance\n\ntest = conformance({wanted!r}, op={op!r})\n", "utf-8"
        )
        arguments = [str(file), "-q", "-p", "no:cacheprovider", "--rootdir", folder, *options]
        ended = int(import_module("pytest").main(arguments))
    return ended if ended == 0 else FAILED if ended == 1 else REFUSED
