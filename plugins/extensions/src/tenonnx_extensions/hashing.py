"""Hash buckets of strings: MurmurHash64A, and FarmHash's fingerprint (na::Hash64)."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import DType, TypeMismatch, dtypes, primitive
from tenonnx_extensions.checks import DOMAIN, mapped, single
from tenonnx_standard.checking import numpy_rule

_WORD = (1 << 64) - 1
_SEED = 0xDECAFCAFFE
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def murmur(data: bytes) -> int:
    """MurmurHash64A with the seed of TensorFlow's Hash64, tensorflow/tsl/platform/hash.cc."""
    m, whole = 0xC6A4A7935BD1E995, len(data) // 8 * 8
    h = _SEED ^ (len(data) * m & _WORD)
    for start in range(0, whole, 8):
        k = _word(data, start) * m & _WORD
        k = (k ^ k >> 47) * m & _WORD
        h = (h ^ k) * m & _WORD
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & _WORD
    h = (h ^ h >> 47) * m & _WORD
    return h ^ h >> 47


def fingerprint(data: bytes) -> int:
    """FarmHash's Fingerprint64, with separate cases for lengths up to 16, 32, 64 bytes, and above."""
    size = len(data)
    if size <= 16:
        return _to_16(data)
    if size <= 32:
        mul = _K2 + size * 2
        a, b, c = _word(data, 0) * _K1, _word(data, 8), _word(data, size - 8) * mul
        d = _word(data, size - 16) * _K2
        return _pair(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c, mul)
    if size <= 64:
        return _to_64(data)
    return _long(data)


def _to_16(data: bytes) -> int:
    size = len(data)
    mul = _K2 + size * 2
    if size >= 8:
        a, b = _word(data, 0) + _K2, _word(data, size - 8)
        c = _rotate(b, 37) * mul + a
        return _pair(c, (_rotate(a, 25) + b) * mul, mul)
    if size >= 4:
        return _pair(size + (_half(data, 0) << 3), _half(data, size - 4), mul)
    if size:
        y = data[0] + (data[size >> 1] << 8)
        z = size + (data[-1] << 2)
        return _mixed(y * _K2 ^ z * _K0) * _K2 & _WORD
    return _K2


def _to_64(data: bytes) -> int:
    size = len(data)
    mul = _K2 + size * 2
    a, b = _word(data, 0) * _K2, _word(data, 8)
    c, d = _word(data, size - 8) * mul, _word(data, size - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _pair(y, a + _rotate(b + _K2, 18) + c, mul)
    e, f = _word(data, 16) * mul, _word(data, 24)
    g, h = (y + _word(data, size - 32)) * mul, (z + _word(data, size - 24)) * mul
    return _pair(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, mul)


def _long(data: bytes) -> int:
    size = len(data)
    x, y = 81, (81 * _K1 + 113) & _WORD
    z = _mixed(y * _K2 + 113) * _K2 & _WORD
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _word(data, 0)) & _WORD
    end = (size - 1) // 64 * 64
    for start in range(0, end, 64):
        x = _rotate(x + y + v[0] + _word(data, start + 8), 37) * _K1
        y = _rotate(y + v[1] + _word(data, start + 48), 42) * _K1
        x ^= w[1]
        y += v[0] + _word(data, start + 40)
        z = _rotate(z + w[0], 33) * _K1
        v = _weak(data, start, v[1] * _K1, x + w[0])
        w = _weak(data, start + 32, z + w[1], y + _word(data, start + 16))
        x, z = z & _WORD, x & _WORD
        y &= _WORD
    mul = _K1 + ((z & 0xFF) << 1)
    start = size - 64
    w = (w[0] + ((size - 1) & 63), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    x = _rotate(x + y + v[0] + _word(data, start + 8), 37) * mul
    y = _rotate(y + v[1] + _word(data, start + 48), 42) * mul
    x ^= w[1] * 9
    y += v[0] * 9 + _word(data, start + 40)
    z = _rotate(z + w[0], 33) * mul
    v = _weak(data, start, v[1] * mul, x + w[0])
    w = _weak(data, start + 32, z + w[1], y + _word(data, start + 16))
    first = _pair(v[0], w[0], mul) + _mixed(y) * _K0 + x
    return _pair(first, _pair(v[1], w[1], mul) + z, mul)


def _weak(data: bytes, start: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(data, start + k) for k in (0, 8, 16, 24))
    a += w
    b = _rotate(b + a + z, 21)
    c = a
    a += x + y
    return (a + z) & _WORD, (b + _rotate(a, 44) + c) & _WORD


def _pair(u: int, v: int, mul: int) -> int:
    a = ((u ^ v) & _WORD) * mul & _WORD
    a ^= a >> 47
    b = ((v ^ a) & _WORD) * mul & _WORD
    return (b ^ b >> 47) * mul & _WORD


def _mixed(x: int) -> int:
    x &= _WORD
    return x ^ x >> 47


def _rotate(x: int, bits: int) -> int:
    x &= _WORD
    return (x >> bits | x << (64 - bits)) & _WORD


def _word(data: bytes, start: int) -> int:
    return int.from_bytes(data[start : start + 8], "little")


def _half(data: bytes, start: int) -> int:
    return int.from_bytes(data[start : start + 4], "little")


# ----- ops ------------------------------------------------------------------------------------------------------------


@primitive("StringToHashBucket", domain=DOMAIN)
def string_to_hash_bucket(input, num_buckets):
    """Hash each string to one of ``num_buckets`` by MurmurHash64A of its UTF-8 bytes."""


@primitive("StringToHashBucketFast", domain=DOMAIN)
def string_to_hash_bucket_fast(input, num_buckets):
    """Hash each string to one of ``num_buckets`` by FarmHash's Fingerprint64 of its UTF-8 bytes."""


def _register(op, function):
    op.requires(dtypes(input="string", num_buckets="int64"))

    @op.type
    def type_rule(input, num_buckets):
        return input.tensor.with_dtype(DType.int64)

    @numpy_rule(op)
    def rule(input, num_buckets):
        buckets = single(op, "num_buckets", num_buckets)
        if buckets < 1:
            raise TypeMismatch(f'{op.title}: "num_buckets" is not positive', given=str(buckets))
        return mapped(lambda text: function(text.encode("utf-8", "surrogatepass")) % buckets, input, np.int64)


_register(string_to_hash_bucket, murmur)
_register(string_to_hash_bucket_fast, fingerprint)
