"""The program as a process: imports, exit codes, and commands of plugins."""

import json
import os
import signal
import subprocess
import sys

import click
import pytest

from tenonnx.errors import VerificationFailed
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.hints import names_of
from tenonnx_cli.describe import describe
from tenonnx_cli.output import say_json
from tenonnx_cli.program import COMMANDS, SECTIONS

PROGRAM = [sys.executable, "-m", "tenonnx"]

#: A function that commands call through its module, so that tests can replace it.
DESCRIBE = "tenonnx_cli.describe.describe"


def process(*arguments, **environment):
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TENONNX_PLUGINS": "", **environment},
    )


def test_help_imports_neither_numpy_nor_onnx():
    code = (
        "import sys; from tenonnx_cli import main; code = main(['--help']); "
        "heavy = {'numpy', 'onnx', 'rich', 'ml_dtypes', 'google.protobuf'} & sys.modules.keys(); "
        "sys.exit(f'imported: {heavy}' if heavy else code)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert all(command in result.stdout for command in COMMANDS)


def test_commands_of_all_packages_are_read_without_numpy():
    code = (
        "import sys; from tenonnx_cli.program import program; import click; context = click.Context(program); "
        "[program.get_command(context, name) for name in program.list_commands(context)]; "
        "heavy = {'numpy', 'onnx', 'rich'} & sys.modules.keys(); sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "words", ["tenonnx con", "tenonnx convert --opt", "tenonnx convert --target ten", "tenonnx train --loss "]
)
def test_completion_imports_no_packages_that_work_on_models(words):
    code = (
        "import sys; from tenonnx_cli import main; code = main([]); "
        "heavy = {'numpy', 'onnx', 'rich', 'tenonnx.graph.graph', 'tenonnx_optimize.simplification'}; "
        "heavy &= sys.modules.keys(); sys.exit(f'imported: {heavy}' if heavy else code)"
    )
    variables = {"_TENONNX_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **variables}
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(tenonnx, command):
    result = tenonnx(command, "--help")
    assert result.code == 0
    assert "--json" in result.out or command == "help"


def test_the_exit_codes_of_the_process(model, tmp_path):
    assert process("--version").stdout.startswith("tenonnx, version ")
    assert process("check", model).returncode == 0
    failed = process("convert", tmp_path / "none.onnx", "-o", tmp_path / "m.onnx")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("InvalidCall: ")
    model.write_bytes(b"broken")
    assert process("check", model).returncode == 1


def test_a_traceback_is_shown_when_asked_for(tmp_path):
    shown = process("inspect", tmp_path / "none.onnx", TENONNX_TRACEBACK="1")
    assert shown.returncode == 2
    assert "Traceback" in shown.stderr
    assert "InvalidCall" in shown.stderr


def test_an_unforeseen_error_is_one_line(tenonnx, model, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(DESCRIBE, broken)
    result = tenonnx("inspect", model)
    assert result.code == 2
    assert result.err == "RuntimeError: two lines (unexpected; TENONNX_TRACEBACK=1 shows where it comes from)\n"


def test_a_failed_verification_is_a_failed_check(tenonnx, model, monkeypatch):
    def failed(*_, **__):
        raise VerificationFailed("they differ")

    monkeypatch.setattr(DESCRIBE, failed)
    assert tenonnx("inspect", model).code == 1


def test_an_interrupt_ends_quietly(tenonnx, model, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(DESCRIBE, interrupted)
    result = tenonnx("inspect", model)
    assert result.code == 130
    assert result.err == "interrupted\n"


def test_an_interrupt_while_the_program_is_imported_ends_quietly(tenonnx, monkeypatch):
    class Interrupted:
        def find_spec(self, name, *_):
            if name == "click":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "click")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    result = tenonnx("--help")
    assert (result.code, result.out, result.err) == (130, "", "interrupted\n")


def test_warnings_are_one_line(tenonnx, model, monkeypatch):
    import warnings

    def warned(graph):
        warnings.warn("numpy runs the graph", stacklevel=1)
        return describe(graph)

    monkeypatch.setattr(DESCRIBE, warned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = tenonnx("inspect", model)
    assert result.err == "warning: numpy runs the graph\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes end otherwise elsewhere")
def test_a_closed_pipe_is_no_error(model):
    end = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m tenonnx inspect "{model}" | true; echo ${{PIPESTATUS[0]}}'],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TENONNX_PLUGINS": ""},
    )
    assert end.stdout.strip() in ("0", "141")
    assert end.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_a_process_that_is_killed_leaves_the_source(tmp_path, model):
    """The process is killed just before the new file replaces the old one."""
    code = (
        "import os, sys, pathlib; from tenonnx_cli import main\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        f"main(['convert', {str(model)!r}, '-o', {str(model)!r}, '--tidy'])"
    )
    before = model.read_bytes()
    result = subprocess.run([sys.executable, "-c", code], timeout=60, env={**os.environ, "TENONNX_PLUGINS": ""})
    assert result.returncode == -signal.SIGKILL
    assert model.read_bytes() == before


# ----- commands of plugins ----------------------------------------------------------------------------------------


@click.command("greet")
def greet():
    """Say hello."""
    click.echo("hello")


def add_part(group):
    group.add_command(click.Command("part", callback=lambda: click.echo("goodbye")))


@pytest.fixture
def plugged(tenonnx, monkeypatch):
    """The program with commands of plugins, given by name as objects of entry points."""

    def install(*commands):
        result = [Plugin(name, f"acme:{name}", "tenonnx.commands", package, "1.0") for name, package, _ in commands]
        objects = {plugin: loaded for plugin, (*_, loaded) in zip(result, commands, strict=True)}
        monkeypatch.setattr("tenonnx.tools.plugins", lambda group: result if "commands" in group else [])
        monkeypatch.setattr(Plugin, "load", lambda plugin: objects[plugin])
        return tenonnx

    return install


def test_commands_of_plugins_are_listed_and_run(plugged):
    tenonnx = plugged(("greet", "tenonnx-acme", greet), ("part", "tenonnx-acme", add_part))
    assert "from tenonnx-acme 1.0" in tenonnx("--help").out
    assert tenonnx("greet").out == "hello\n"
    assert tenonnx("part").out == "goodbye\n"


def test_help_lists_our_commands_by_what_they_are_for(tenonnx):
    """Commands of packages that are not installed are omitted, and ours are not listed as third-party."""
    named = {name: line for lines in SECTIONS.values() for name, line in lines.items()}
    assert set(COMMANDS) <= set(named) == names_of("tenonnx.commands") | set(COMMANDS)
    text = tenonnx("--help").out
    there = [title for title, lines in SECTIONS.items() if set(lines) & set(COMMANDS)]
    assert [title for title in SECTIONS if f"\n{title}:\n" in text] == there
    assert all(len(f"  {name:<9}{line}") < 80 for name, line in named.items())


def test_a_plugin_without_a_command_is_refused(plugged):
    result = plugged(("greet", "tenonnx-acme", lambda group: None))("greet")
    assert result.code == 2
    assert "is not a click command" in result.err


@pytest.mark.parametrize(
    ("printed", "code", "out", "err"),
    [
        ("print(json.dumps({'a': 'é'}))", 0, '{"a": "\\u00e9"}\n', ""),
        ("click.echo('hm', err=True); say_json([1])", 0, "[\n  1\n]\n", "hm"),
        ("print('working ...'); print('{}')", 2, "", "working ..."),
        (
            "sys.stdout.buffer.write(b'\\xff\\xfe')",
            2,
            "",
            'the command "odd" printed something other than JSON with --json',
        ),
        ("pass", 2, "", "nothing"),
        ("print('half {'); 1 / 0", 2, "", "ZeroDivisionError"),
        ("print('{}'); 1 / 0", 2, "", "ZeroDivisionError"),
        ("print('[3]'); click.get_current_context().exit(3)", 3, "[3]\n", ""),
    ],
)
def test_a_command_of_a_package_prints_json_or_nothing(plugged, printed, code, out, err):
    def callback(as_json):
        exec(printed, {"json": json, "click": click, "sys": sys, "say_json": say_json})

    odd = click.Command("odd", params=[click.Option(["--json", "as_json"], is_flag=True)], callback=callback)
    result = plugged(("odd", "tenonnx-acme", odd))("odd", "--json")
    assert result.code == code
    assert set(result.json) == {"error"} if code == 2 else result.out == out
    assert err in result.err
    assert "Usage:" in plugged(("odd", "tenonnx-acme", odd))("odd", "--json", "--help").out


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["inspect", "none.onnx"], "InvalidCall", "none.onnx"),
        (["inspect", "--nowhere"], "NoSuchOption", "--nowhere"),
        (["inspekt"], "UsageError", "inspect"),
        (["convert", "none.onnx"], "MissingParameter", "--output"),
        (["train", "none.onnx"], "PluginError", "tenonnx-training"),
    ],
)
def test_an_error_is_json_on_stdout_with_json(tenonnx, arguments, kind, message):
    result = tenonnx(*arguments, "--json")
    assert result.code == 2
    (error,) = result.json.values()
    assert (error["type"], list(result.json)) == (kind, ["error"])
    assert message in json.dumps(error)
    assert result.err
    assert "error" not in tenonnx(*arguments).out


def test_an_error_is_not_written_into_a_model_on_stdout(tenonnx):
    assert tenonnx("convert", "none.onnx", "-o", "-", "--json").out == ""


# ----- terminals --------------------------------------------------------------------------------------------------


def test_a_terminal_shows_tables_and_progress(tenonnx, model, monkeypatch):
    monkeypatch.setattr("tenonnx_cli.output.PATIENCE", 0.0)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    result = tenonnx("inspect", model)
    assert result.code == 0
    assert "Double" in result.out
    assert "provided by" in result.out
    assert json.loads(tenonnx("inspect", model, "--json").out)["file"] == str(model)


def test_a_command_of_a_package_that_is_not_installed_names_it(tenonnx):
    result = tenonnx("train", "model.onnx")
    assert result.code == 2
    assert 'cannot run the command "train": tenonnx-training is not installed' in result.err
    assert "tenonnx-training" in result.err


def test_an_option_of_a_package_that_is_not_installed_names_it(tenonnx):
    result = tenonnx("convert", "model.onnx", "-o", "other.onnx", "--qdq")
    assert result.code == 2
    assert "cannot use --qdq: tenonnx-quantized is not installed" in result.err
    assert "No such option '--qqq'" in tenonnx("convert", "model.onnx", "--qqq").err
