"""Registration of every module of this package that defines operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl

if TYPE_CHECKING:
    from tenonnx.extend import Registry

#: Ops that the runtime's library has in both domains.
_IN_BOTH = (
    "BasicTokenizer",
    "BertTokenizer",
    "BertTokenizerDecoder",
    "BlingFireSentenceBreaker",
    "BpeDecoder",
    "CLIPTokenizer",
    "GPT2Tokenizer",
    "HfBertTokenizer",
    "HfJsonTokenizer",
    "RobertaTokenizer",
    "SentencepieceDecoder",
    "SentencepieceTokenizer",
    "SpmTokenizer",
    "TrieDetokenizer",
    "TrieTokenizer",
    "WordpieceTokenizer",
)


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_aliases("com.microsoft.extensions", {name: f"ai.onnx.contrib::{name}" for name in _IN_BOTH})


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package("tenonnx_extensions")
