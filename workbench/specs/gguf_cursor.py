"""A position in an untrusted GGUF file: reads numbers, text and values, never leaves the file.

Every claim is checked against the bytes that are left, before anything is allocated.
"""

import functools
import struct
from typing import NamedTuple

from workbench.errors import FileError

#: the GGUF number of each value type -> struct code; 8 is a string, 9 an array.
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_U64 = struct.Struct("<Q")
#: Arrays up to this length (settings per layer) are kept, longer ones (vocabulary) stepped over.
_KEPT = 4096
#: Far above any real file, low enough that a hostile one is refused at once.
_MAX_NAME, _MAX_TEXT, _MAX_STRINGS = 4096, 2**22, 10**7


class Skipped(NamedTuple):
    """A metadata array that was stepped over: its GGUF value type and how many entries it has."""

    type: int
    length: int


class Cursor:
    """A position in the mapped file that never leaves it."""

    def __init__(self, bytes_, size: int, name: str):
        self.bytes, self.size, self.at, self.name = bytes_, size, 0, name

    def fail(self, field: str, problem: str):
        raise FileError(f"{self.name}: {field[:120]!r} at byte {self.at}: {problem}")

    def need(self, count: int, field: str) -> None:
        if count > self.size - self.at:
            left = self.size - self.at
            self.fail(field, f"needs {count} bytes, {left} are left; truncated or no GGUF file")

    def number(self, code: str, field: str):
        form = _struct(code)
        self.need(form.size, field)
        (value,) = form.unpack_from(self.bytes, self.at)
        self.at += form.size
        return value

    def count(self, most: int, smallest: int, field: str) -> int:
        """Read how many entries of `smallest` bytes or more follow, at most `most`."""
        value = self.number("Q", field)
        possible = min(most, (self.size - self.at) // smallest)
        if value > possible:
            self.at -= 8
            self.fail(field, f"claims {value} entries; at most {possible} are possible")
        return value

    def text(self, most: int, field: str) -> str:
        length = self.number("Q", field)
        if length > most:
            self.at -= 8
            self.fail(field, f"claims {length} characters; at most {most} are accepted")
        self.need(length, field)
        raw = self.bytes[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8", "replace")

    def identifier(self, field: str) -> str:
        start = self.at
        value = self.text(_MAX_NAME, field)
        if not value or "\ufffd" in value or not value.isprintable():
            self.at = start
            self.fail(field, "must be non-empty printable UTF-8")
        return value


@functools.cache
def _struct(code: str) -> struct.Struct:
    return struct.Struct("<" + code)


def read_value(cursor: Cursor, key: str):
    """Read one metadata value: its type, then a scalar, text, tuple, or `Skipped` long array."""
    kind = cursor.number("I", key)
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind], key)
    if kind == _STRING:
        return cursor.text(_MAX_TEXT, key)
    if kind == _ARRAY:
        return _array(cursor, key)
    return cursor.fail(key, f"value type {kind} is unknown; 0 to 12 exist")


def _array(cursor: Cursor, key: str):
    kind = cursor.number("I", key)
    if kind == _STRING:
        length = cursor.count(_MAX_STRINGS, 8, key)
        if length <= _KEPT:
            return tuple(cursor.text(_MAX_TEXT, key) for _ in range(length))
        _skip_strings(cursor, length, key)
    elif kind in _SCALARS:
        form = _struct(_SCALARS[kind])
        length = cursor.count(2**40, form.size, key)
        if length <= _KEPT:
            return tuple(cursor.number(_SCALARS[kind], key) for _ in range(length))
        cursor.at += length * form.size
    else:
        cursor.fail(key, f"arrays of value type {kind} are not supported; scalars and strings are")
    return Skipped(kind, length)


def _skip_strings(cursor: Cursor, length: int, key: str) -> None:
    """Step over `length` strings: one small loop, since a vocabulary has 262 144 of them."""
    at, unpack, bytes_ = cursor.at, _U64.unpack_from, cursor.bytes
    try:
        for _ in range(length):
            at += 8 + unpack(bytes_, at)[0]
    except (struct.error, OverflowError):
        at = cursor.size + 1
    if at > cursor.size:
        cursor.fail(key, "a string reaches beyond the end of the file; truncated or no GGUF file")
    cursor.at = at
