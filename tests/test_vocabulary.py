"""Consistent options of all commands: one meaning per option, one name per meaning."""

from collections import defaultdict

import click

from tenonnx_cli.program import program

#: Names of options in other tools, and our names.
SYNONYMS = {
    "--batch": "--batch-size",
    "--out": "--output",
    "--shape": "--input-shapes",
    "--shapes-of-inputs": "--input-shapes",
    "--random-seed": "--seed",
    "--force": "--overwrite",
    "--device-name": "--device",
    "--num-threads": "--threads",
}

#: Options whose kind of value differs between commands, with the reasons.
SEVERAL_MEANINGS = {
    "--input": "score reads folders of rows, whose columns have the names of the inputs",
    "--output": "score writes a folder",
    "--map": "compose maps outputs to inputs, compare the names of two files",
    "--load": "convert also takes options of what reads the model",
    "--budget": "convert bounds the error of half precision, quantize that of quantization",
    "--nodes": "inspect lists nodes, bench times them",
    "--batch-size": "bench times several",
    "--threads": "bench times several",
    "--provider": "bench times several",
    "--method": "explain attributes by one method, quantize rounds weights by several",
    "--report": "plugins test writes a certificate, quantize prints a table",
    "--check": "score checks rows, plugins checks packages",
    "--input-names": "extract names values of the graph, convert the inputs of a function",
    "--output-names": "extract and score name values of the graph, convert the outputs of a function",
}


def commands():
    """Every command by name, except ``plugins new``, whose flags name parts of a package."""
    context = click.Context(program)
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        yield name, command
        if isinstance(command, click.Group):
            yield from (
                (f"{name} {inner}", command.get_command(context, inner))
                for inner in command.list_commands(context)
                if inner != "new"
            )


def options():
    """Pairs of command name and option."""
    for name, command in commands():
        for parameter in command.get_params(click.Context(command)):
            if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
                yield name, parameter


def test_an_option_means_one_thing():
    meanings = defaultdict(lambda: defaultdict(list))
    for command, option in options():
        value = "flag" if option.is_flag else option.metavar or option.type.name
        for name in (*option.opts, *option.secondary_opts):
            meanings[name][value].append(command)
    several = {name: dict(result) for name, result in meanings.items() if len(result) > 1 and name.startswith("--")}
    assert {name: result for name, result in several.items() if name not in SEVERAL_MEANINGS} == {}
    shorts = defaultdict(set)
    for _, option in options():
        for name in option.opts:
            if len(name) == 2:
                shorts[name].add(next((each for each in option.opts if each.startswith("--")), name))
    assert {name: result for name, result in shorts.items() if len(result) > 1} == {}


def test_a_thing_has_one_name():
    used = defaultdict(set)
    for command, option in options():
        assert not set(option.opts) & set(SYNONYMS), (command, option.opts)
        if option.help:
            used[option.help].add(tuple(option.opts))
    assert {help: names for help, names in used.items() if len(names) > 1} == {}


def test_commands_that_write_a_model_have_common_options():
    for name in ("convert", "extract", "rename", "compose", "quantize", "grad", "train"):
        command = program.get_command(click.Context(program), name)
        taken = [option.opts for option in command.get_params(click.Context(command))]
        for options in (["-o", "--output"], ["--overwrite"], ["-q", "--quiet"], ["--json"]):
            assert options in taken, (name, options)


def test_commands_that_run_a_model_have_device_options():
    for name in ("run", "train", "evaluate"):
        command = program.get_command(click.Context(program), name)
        taken = {option.opts[0] for option in command.params}
        assert {"--backend", "--device", "--provider", "--threads"} <= taken, name


def test_plan_has_the_options_of_convert_before_writing():
    names = {}
    for name in ("convert", "plan"):
        command = program.get_command(click.Context(program), name)
        names[name] = {each.opts[-1] for each in command.get_params(click.Context(command))}
    of_writing = "output overwrite hook shapes tidy strip external-data-threshold costs profile print-config"
    of_folders = "layout adapter cache max-shard"
    of_comparing = "verify verify-with atol rtol exact precision input inputs"
    left = {f"--{each}" for each in f"{of_writing} {of_folders} {of_comparing}".split()}
    assert names["convert"] - names["plan"] - left == set()


def test_inputs_and_outputs_are_files():
    assert {option.metavar for _, option in options() if {"--inputs", "--outputs"} & set(option.opts)} == {"FILE"}
