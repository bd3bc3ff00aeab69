"""Op indexes of our families: an op loaded by itself equals the one loaded with all others."""

import json
import os
import subprocess
import sys

import pytest

#: Looks up each op in its own process without imported families, then all ops in one process with every module.
PROGRAM = """
import json, os, sys
from tenonnx.extend import transforms, symbolic
from tenonnx.registry.registry import Registry

def told(registry, key):
    # Rules "normal" are in modules of nothing but rules, which are imported when such a rule is asked for.
    return [
        [op.title, op.before, sorted({*op.rules} - {"normal"}), sorted(op.facts), len(op.lowerings),
         len(op.signature_changes), len(op.requirements.declared)]
        for op in registry.meanings(*key)
    ]

registry = Registry.installed()
for domain in registry.domains():
    registry.load(domain)
by_modules = {}
reached = {"::".join(key): told(registry, key) for key in registry._contents.ops}
for key, modules in registry._contents.awaited.items():
    by_modules.setdefault(modules, []).append(key)
alone = {}
for keys in by_modules.values():
    reading, writing = os.pipe()
    if not os.fork():
        with os.fdopen(writing, "w") as out:
            json.dump(["::".join(key) for key in keys] + [told(registry, key) for key in keys], out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as text:
        found = json.load(text)
    os.wait()
    alone.update(zip(found[: len(keys)], found[len(keys) :]))
registry.load_all()
alone |= reached
whole = {key: told(registry, key.split("::")) for key in alone}
different = {key: [alone[key], whole[key]] for key in whole if alone[key] != whole[key]}
print(len(whole), len(by_modules), json.dumps(different))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_modules_of_the_index_define_all_meanings_and_rules_of_an_op():
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True, timeout=240)
    ops, groups, different = done.stdout.split(" ", 2)
    assert int(ops) > 400
    assert int(groups) > 60
    assert json.loads(different) == {}
