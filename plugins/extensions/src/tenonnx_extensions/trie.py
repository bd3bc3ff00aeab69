"""Tokenization by the longest match in a trie of bytes, like in RWKV, and decoding."""

from __future__ import annotations

import ast
from functools import lru_cache

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, dtypes, primitive
from tenonnx_extensions.checks import DOMAIN, padded, strings
from tenonnx_standard.checking import numpy_rule


@primitive("TrieTokenizer", domain=DOMAIN)
def trie_tokenizer(str, *, vocab: str):
    """Ids of each string along a new last axis, by the longest match at each position. Rows are padded with 0.

    ``vocab`` has a line per token: a positive id, the token as a Python literal (string or bytes), and its size in
    bytes. Raises ``TypeMismatch`` for text with bytes that start no token.
    """


@primitive("TrieDetokenizer", domain=DOMAIN, grows_text=True)
def trie_detokenizer(tokens, *, vocab: str):
    """Decode each row of ids to text; unknown ids are skipped.

    Raises ``TypeMismatch`` if the text is not UTF-8.
    """


trie_tokenizer.requires(dtypes(str="string"))
trie_detokenizer.requires(dtypes(tokens="int64"))


@trie_tokenizer.type
def trie_tokenizer_type(str, *, vocab):
    shape = str.tensor.shape
    return TensorType(DType.int64, None if shape is None else (*shape, None))


@trie_detokenizer.type
def trie_detokenizer_type(tokens, *, vocab):
    shape = tokens.tensor.shape
    return TensorType(DType.string, None if shape is None else shape[:-1] or (1,))


@lru_cache(maxsize=8)
def _tokens(title, vocab):
    """Tokens by their ids. Raises ``TypeMismatch`` for malformed lines."""
    result = {}
    for line in vocab.split("\n"):
        if not line:
            continue
        number, _, rest = line.partition(" ")
        literal, _, size = rest.rpartition(" ")
        try:
            token = ast.literal_eval(literal)
            contents = token.encode() if isinstance(token, str) else bytes(token)
            is_right = int(number) > 0 and 0 < len(contents) == int(size)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            is_right = False
        if not is_right:
            raise TypeMismatch(f'{title}: a line of "vocab" is not an id, a token and its size', given=line[:200])
        result[int(number)] = contents
    return result


@lru_cache(maxsize=8)
def _ids(title, vocab):
    """Ids by tokens, and token sizes in descending order."""
    ids = {token: number for number, token in _tokens(title, vocab).items()}
    return ids, sorted({len(token) for token in ids}, reverse=True)


@numpy_rule(trie_tokenizer)
def trie_tokenizer_numpy(str, *, vocab):
    ids, sizes = _ids(trie_tokenizer.title, vocab)

    def row(text):
        data, place, result = text.encode("utf-8", "surrogatepass"), 0, []
        while place < len(data):
            size = next((size for size in sizes if data[place : place + size] in ids), None)
            if size is None:
                raise TypeMismatch(
                    f"{trie_tokenizer.title}: text has bytes that start no token", given=repr(data[place : place + 20])
                )
            result.append(ids[data[place : place + size]])
            place += size
        return result

    matrix = padded([row(text) for text in str.reshape(-1).tolist()], 0)
    return matrix.reshape(*str.shape, matrix.shape[1])


@numpy_rule(trie_detokenizer)
def trie_detokenizer_numpy(tokens, *, vocab):
    known = _tokens(trie_detokenizer.title, vocab)
    rows = tokens.reshape(-1, tokens.shape[-1]) if tokens.size else np.zeros((int(np.prod(tokens.shape[:-1])), 0), int)
    contents = [b"".join(known.get(number, b"") for number in row) for row in rows.tolist()]
    try:
        return strings([each.decode() for each in contents], tokens.shape[:-1] or (1,))
    except UnicodeDecodeError as error:
        raise TypeMismatch(f"{trie_detokenizer.title}: the text of ids is not UTF-8", given=str(error)) from error
