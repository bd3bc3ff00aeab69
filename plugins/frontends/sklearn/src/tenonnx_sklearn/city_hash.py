"""CityHash64 (version 1.0), CatBoost's hash of categories."""

from __future__ import annotations

_BITS = (1 << 64) - 1
_K = (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F, 0xC949D7C7509E6557)
_MIX = 0x9DDFEA08EB382D69


def city_hash(text: bytes) -> int:
    """The unsigned 64-bit hash of bytes."""
    size = len(text)
    if size <= 16:
        return _short(text)
    if size <= 32:
        a, b, c, d = _at(text, 0) * _K[1], _at(text, 8), _at(text, size - 8) * _K[2], _at(text, size - 16) * _K[0]
        return _mixed(_rotated(a - b, 43) + _rotated(c, 30) + d, a + _rotated(b ^ _K[3], 20) - c + size)
    return _middle(text) if size <= 64 else _long(text)


def _short(text: bytes) -> int:
    size = len(text)
    if size > 8:
        last = _at(text, size - 8)
        return _mixed(_at(text, 0), _rotated(last + size, size)) ^ last
    if size >= 4:
        return _mixed(size + (_at(text, 0, 4) << 3), _at(text, size - 4, 4))
    if not size:
        return _K[2]
    low, high = text[0] + (text[size >> 1] << 8), size + (text[-1] << 2)
    return _shifted(low * _K[2] ^ high * _K[3]) * _K[2] & _BITS


def _middle(text: bytes) -> int:
    size = len(text)
    one, two = _quarters(text, 0, size - 16, 24), _quarters(text, 16, size - 32, size - 8, size)
    mixed = _shifted((one[0] + two[1]) * _K[2] + (two[0] + one[1]) * _K[0])
    return _shifted(mixed * _K[0] + one[1]) * _K[2] & _BITS


def _quarters(text: bytes, first: int, second: int, last: int, end: int = 0) -> tuple[int, int]:
    """Partial sums of the first half, or with ``end`` of the last half."""
    z = _at(text, last)
    a = _at(text, first) + (_at(text, second) if end else (len(text) + _at(text, second)) * _K[0])
    b, c = _rotated(a + z, 52), _rotated(a, 37)
    a += _at(text, end - 24) if end else _at(text, 8)
    c += _rotated(a, 7)
    a += _at(text, end - 16) if end else _at(text, 16)
    return a + z, b + _rotated(a, 31) + c


def _long(text: bytes) -> int:
    size = len(text)
    x, y, z = _at(text, 0), _at(text, size - 16) ^ _K[1], _at(text, size - 56) ^ _K[0]
    v, w = _pair(text, size - 64, size, y), _pair(text, size - 32, size * _K[1], _K[0])
    z += _shifted(v[1]) * _K[1]
    x, y = _rotated(z + x, 39) * _K[1], _rotated(y, 33) * _K[1]
    for start in range(0, (size - 1) // 64 * 64, 64):
        x = _rotated(x + y + v[0] + _at(text, start + 16), 37) * _K[1] ^ w[1]
        y = _rotated(y + v[1] + _at(text, start + 48), 42) * _K[1] ^ v[0]
        z = _rotated(z ^ w[0], 33)
        v, w = _pair(text, start, v[1] * _K[1], x + w[0]), _pair(text, start + 32, z + w[1], y)
        x, z = z, x
    return _mixed(_mixed(v[0], w[0]) + _shifted(y) * _K[1] + z, _mixed(v[1], w[1]) + x)


def _pair(text: bytes, start: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_at(text, start + 8 * k) for k in range(4))
    a += w
    b = _rotated(b + a + z, 21)
    whole = a + x + y
    return whole + z, b + _rotated(whole, 44) + a


def _at(text: bytes, start: int, size: int = 8) -> int:
    return int.from_bytes(text[start : start + size], "little")


def _rotated(number: int, by: int) -> int:
    number &= _BITS
    return (number >> by | number << (64 - by)) & _BITS


def _shifted(number: int) -> int:
    number &= _BITS
    return number ^ number >> 47


def _mixed(low: int, high: int) -> int:
    """Mix two words into one."""
    low, high = low & _BITS, high & _BITS
    first = _shifted((low ^ high) * _MIX)
    return _shifted((high ^ first) * _MIX) * _MIX & _BITS
