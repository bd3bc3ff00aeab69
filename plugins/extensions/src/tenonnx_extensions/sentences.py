"""Sentence breaking by Bling Fire."""

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

#: Runs in a subprocess, since the library crashes on unreadable models.
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
    """The sentences of a text, string[count], by a serialized Bling Fire ``model``.

    ``max_sentence`` has no effect, as in the runtime's library. Raises ``TypeMismatch`` for an unreadable model.
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
    """The sentences of a text. Raises ``TypeMismatch`` for an unreadable model."""
    title = bling_fire_sentence_breaker.title
    module("blingfire", "sentences")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.bin")
        path.write_bytes(model)
        # without -P, modules in the current folder take precedence
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
