"""Sentences of a text, by the automata of Bling Fire."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from tenonnx.extend import DType, TensorType, TypeMismatch, dtypes, primitive
from tenonnx_extensions.checks import DOMAIN, module, single, strings
from tenonnx_standard.checking import numpy_rule

#: A program of its own, as the library ends the process where it cannot read a model.
_PROGRAM = """
import json, sys
import blingfire
model, text = blingfire.load_model(sys.argv[1]), json.load(sys.stdin)
json.dump(blingfire.text_to_sentences_with_model(model, text).split(chr(10)), sys.stdout)
"""

#: Seconds after which a model is refused.
_TIMEOUT = 60


@primitive("BlingFireSentenceBreaker", domain=DOMAIN)
def bling_fire_sentence_breaker(text, *, model: bytes, max_sentence=-1):
    """The sentences of one text, string[count], by a serialized ``model`` of Bling Fire.

    ``max_sentence`` has no effect, as in the runtime's library. Raises ``TypeMismatch`` for a model that the
    library cannot read.
    """


bling_fire_sentence_breaker.requires(dtypes(text="string"))


@bling_fire_sentence_breaker.type
def bling_fire_sentence_breaker_type(text, *, model, max_sentence):
    return TensorType(DType.string, (None,))


@numpy_rule(bling_fire_sentence_breaker)
def bling_fire_sentence_breaker_numpy(text, *, model, max_sentence):
    model = model if isinstance(model, bytes) else model.encode()
    return strings(_sentences(model, single(bling_fire_sentence_breaker, "text", text)))


@lru_cache(maxsize=256)
def _sentences(model, text):
    """The sentences of a text. Raises ``TypeMismatch`` for a model that the library cannot read."""
    title = bling_fire_sentence_breaker.title
    module("blingfire", "sentences")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.bin")
        path.write_bytes(model)
        # without -P modules of the current folder come first
        command = [sys.executable, "-P", "-c", _PROGRAM, str(path)]
        try:
            done = subprocess.run(  # noqa: S603, it runs the program above
                command, input=json.dumps(text), capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TypeMismatch(f"{title}: the model takes too long", given=f"{_TIMEOUT} seconds") from error
    if done.returncode:
        raise TypeMismatch(f"{title}: the model cannot be read by Bling Fire", given=done.stderr[-300:])
    return tuple(json.loads(done.stdout))
