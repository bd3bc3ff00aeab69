"""``tenonnx targets``: the runtimes and converters that have a name."""

from __future__ import annotations

import click

from tenonnx.cli.options import json_option
from tenonnx.cli.output import complain, say, say_json, say_table


@click.command("targets")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the targets that plan and convert know by name, or show one.

    Each is a data file with the limits that the documentation of a runtime or converter states, and its source.
    """
    from tenonnx.transforms.profiles import find_profile, profiles

    found, failures = profiles()
    shown = [find_profile(name)] if name else list(found.values())
    for failure in failures:
        complain(str(failure))
    if as_json:
        say_json([profile.to_json() for profile in shown])
        return
    for profile in shown if name else ():
        say(f"{profile.name}: {profile.title}")
    if not name:
        columns = ("target", "ai.onnx", "IR version", "ops", "package")
        rows = [
            (
                p.name,
                p.versions("ai.onnx") if "ai.onnx" in p.opsets else "-",
                "-" if p.ir_version is None else f"up to {p.ir_version}",
                "-" if p.ops is None else str(len(p.ops)),
                p.package,
            )
            for p in shown
        ]
        say_table(rows, columns)
        say("tenonnx targets NAME shows the source; - is what is not documented")
        return
    (profile,) = shown
    facts = [(domain, profile.versions(domain)) for domain in profile.opsets]
    facts.append(("IR version", "not documented" if profile.ir_version is None else f"up to {profile.ir_version}"))
    if profile.dtypes is not None:
        facts.append(("inputs and outputs", ", ".join(sorted(map(str, profile.dtypes)))))
    ops = sorted(op if domain == "ai.onnx" else f"{domain}::{op}" for domain, op in profile.ops or ())
    facts.append(("ops", ", ".join(ops) or "not listed"))
    facts += [("source", profile.source), ("package", profile.package)]
    say_table(facts)
    if profile.note:
        say(profile.note)
