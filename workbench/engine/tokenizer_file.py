"""The vocabulary inside a GGUF file, which the header reader steps over."""

import mmap
from collections.abc import Iterable

from workbench.specs.gguf_cursor import Cursor, read_value
from workbench.specs.gguf_header import GgufHeader

_SCALARS = {4: "I", 5: "i", 6: "f"}
_STRING, _ARRAY = 8, 9
_MAX_TOKENS, _MAX_TOKEN = 10**7, 2**16


def read_arrays(header: GgufHeader, keys: Iterable[str]) -> dict[str, list]:
    """Return the metadata arrays `keys` of text, int32, uint32 or float32, of any length.

    Raises:
        FileError: an array against the format.
    """
    wanted = set(keys)
    with (
        header.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as bytes_,
    ):
        cursor = Cursor(bytes_, len(bytes_), header.path.name)
        return _walk(cursor, wanted)


def _walk(cursor: Cursor, wanted: set[str]) -> dict[str, list]:
    cursor.at = 16  # behind magic, version and tensor count, which the header reader has checked
    found = {}
    for i in range(cursor.number("Q", "metadata count")):
        key = cursor.identifier(f"key {i}")
        if key in wanted:
            found[key] = _array(cursor, key)
        else:
            read_value(cursor, key)
    return found


def _array(cursor: Cursor, key: str) -> list:
    if cursor.number("I", key) != _ARRAY:
        cursor.fail(key, "is no array")
    kind = cursor.number("I", key)
    if kind == _STRING:
        length = cursor.count(_MAX_TOKENS, 8, key)
        return [cursor.text(_MAX_TOKEN, key) for _ in range(length)]
    if kind not in _SCALARS:
        cursor.fail(key, f"is an array of value type {kind}; text and 32-bit numbers are right")
    length = cursor.count(_MAX_TOKENS, 4, key)
    return [cursor.number(_SCALARS[kind], key) for _ in range(length)]
