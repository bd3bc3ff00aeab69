"""Help texts: option groups, examples that parse, the short help of -h, and colors."""

import shlex
import subprocess
import sys

import click
import pytest

from tenonnx_cli import main
from tenonnx_cli.command import FEW, Command
from tenonnx_cli.program import program

NAMES = [name for name in program.list_commands(click.Context(program)) if name != "plugins"]


@pytest.fixture
def printed(capsys):
    """A function that runs a successful command and returns its output."""

    def run(*arguments):
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", NAMES)
def test_each_command_begins_with_two_examples_that_parse(name, printed):
    command = program.get_command(click.Context(program), name)
    assert isinstance(command, Command)
    assert len(command.examples) == 2
    text = printed(name, "--help")
    for example in command.examples:
        tool, given, *arguments = shlex.split(example)
        assert (tool, given) == ("tenonnx", name)
        assert f"\n  {example}\n" in text
        with click.Context(program, info_name="tenonnx") as parent:
            command.make_context(name, arguments, parent, resilient_parsing=True)
            known = {each for option in command.get_params(parent) for each in (*option.opts, *option.secondary_opts)}
        assert {each for each in arguments if each.startswith("-")} <= known
    assert text.index("Examples:") < text.index("  --help")


@pytest.mark.parametrize("name", NAMES)
def test_all_options_are_shown_once_in_a_group(name):
    command = program.get_command(click.Context(program), name)
    context = click.Context(command, info_name=name)
    groups = command.options(context)
    shown = [option for group in groups.values() for option in group]
    assert len(shown) == len({id(option) for option in shown})
    assert {option.name for option in shown} == {
        each.name for each in command.get_params(context) if isinstance(each, click.Option)
    }


def test_groups_of_convert_name_what_options_are_for(printed):
    text = printed("convert", "--help")
    titles = ["Source", "Inputs", "Target", "Precision", "Verification", "Performance", "Output", "Packages"]
    places = [text.index(f"\n{title}:\n") for title in titles]
    assert places == sorted(places)
    assert "\nOptions:\n" not in text


def test_h_shows_the_usual_options_and_says_where_the_others_are(printed):
    short, long = printed("convert", "-h"), printed("convert", "--help")
    assert len(short.splitlines()) < len(long.splitlines()) / 3
    assert "--output FILE" in short
    assert "--ir-version" not in short
    assert short.rstrip().endswith("more options.")
    assert short.split("\n\n")[0] == long.split("\n\n")[0]


def test_a_short_list_of_options_is_shown_completely(printed):
    command = program.get_command(click.Context(program), "rename")
    assert len(command.params) <= FEW
    assert "more options" not in printed("rename", "-h")


def test_help_is_a_command_too(printed, capsys):
    assert printed("help") == printed("--help")
    assert printed("help", "convert") == printed("convert", "--help")
    assert printed("help", "plugins", "new") == printed("plugins", "new", "--help")
    assert main(["help", "convrt"]) == 2
    assert "Did you mean convert?" in capsys.readouterr().err
    assert main(["help", "convert", "more"]) == 2
    assert "tenonnx convert has no commands of its own" in capsys.readouterr().err


def test_version(printed):
    assert printed("version") == printed("--version").replace(", version", "")


def test_help_only_has_colors_on_a_terminal(printed, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = printed("inspect", "--help")
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = printed("inspect", "--help")
    assert "\x1b[" not in plain
    assert "\x1b[1m" in colored
    assert click.unstyle(colored) == plain


def test_rich_and_cloup_are_only_imported_for_output():
    code = (
        "import sys, tenonnx_cli; tenonnx_cli.main(['--help']); "
        "print([m for m in ('rich', 'cloup', 'numpy', 'onnx') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.endswith("[]\n")
