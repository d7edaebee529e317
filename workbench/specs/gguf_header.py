"""The header of a GGUF file, without the weights and the vocabulary.

Format: ggml docs/gguf.md. The bytes are untrusted: every claim is checked before it is used.
"""

import dataclasses
import functools
import mmap
import re
from pathlib import Path

import numpy as np

from workbench.errors import FileError
from workbench.specs import mixes
from workbench.specs.gguf_cursor import Cursor, read_value

#: Far above any real file, low enough that a hostile one is refused at once.
_MAX_ENTRIES, _MAX_TENSORS = 100_000, 10**6
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
#: ik_llama.cpp numbers the row-interleaved twin of a type 200 higher; the bytes are the same.
_INTERLEAVED = 200


@dataclasses.dataclass(frozen=True, eq=False)
class GgufHeader:
    """What a GGUF file says about itself.

    `names`, `shapes` (fastest dimension first), `types` (ggml names), `offsets` (from `data_offset`
    of the tensor's own part) and `nbytes` have one entry a tensor. `metadata` holds scalars, text
    and short arrays; long arrays are `Skipped`. The tensors of all parts of a split file follow
    each other, and `file_size` is their sum.
    """

    path: Path
    version: int
    metadata: dict
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    offsets: np.ndarray
    nbytes: np.ndarray
    data_offset: int
    alignment: int
    file_size: int
    parts: int = 1


def read_header(path: str | Path) -> GgufHeader:
    """Read the header of the GGUF file at `path`; of a split file, of all its parts.

    Raises:
        FileError: missing, not GGUF, truncated, or a field against the format; with its byte.
    """
    headers = read_parts(path)
    return headers[0] if len(headers) == 1 else _merge(headers)


def read_parts(path: str | Path) -> list[GgufHeader]:
    """Read the header of each part of the GGUF file at `path`, most have one.

    Raises:
        FileError: as `read_header`.
    """
    path = Path(path)
    headers = [_read_part(part) for part in _part_paths(path)]
    _check_split(path, headers)
    return headers


def _part_paths(path: Path) -> list[Path]:
    split = _SPLIT.fullmatch(path.name)
    if not split:
        return [path]
    stem, _, count = split.groups()
    if not 1 <= int(split[2]) <= int(count) <= 1000:
        raise FileError(
            f"{path.name}: part {split[2]} of {count} cannot be; parts count from 00001"
        )
    parts = [path.with_name(f"{stem}-{i:05d}-of-{count}.gguf") for i in range(1, int(count) + 1)]
    missing = [part.name for part in parts if not part.exists()]
    if missing and path.exists():
        raise FileError(
            f"{path.name}: part {missing[0]} is missing; keep all {int(count)} in one folder"
        )
    return parts if not missing else [path]


def _check_split(path: Path, headers: list[GgufHeader]) -> None:
    declared = headers[0].metadata.get("split.count", 0)
    if isinstance(declared, int) and declared > 1 and declared != len(headers):
        raise FileError(
            f"{path.name}: split.count says {declared} parts but the name leads to {len(headers)}; "
            f"keep the names ending in -00001-of-{declared:05d}.gguf"
        )


def _merge(headers: list[GgufHeader]) -> GgufHeader:
    names = tuple(name for header in headers for name in header.names)
    _refuse_duplicates(headers[0].path.name, "tensor", names)
    return dataclasses.replace(
        headers[0],
        names=names,
        shapes=sum((header.shapes for header in headers), ()),
        types=sum((header.types for header in headers), ()),
        offsets=np.concatenate([header.offsets for header in headers]),
        nbytes=np.concatenate([header.nbytes for header in headers]),
        file_size=sum(header.file_size for header in headers),
        parts=len(headers),
    )


def _read_part(path: Path) -> GgufHeader:
    try:
        if path.exists() and not path.is_file():
            raise FileError(f"{path}: not a file; give the path of a .gguf file")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise FileError(f"{path}: {size} bytes are no GGUF file; its header alone has 24")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as bytes_:
                return _parse(Cursor(bytes_, size, path.name), path)
    except (OSError, ValueError) as err:
        if isinstance(err, FileError):
            raise
        reason = getattr(err, "strerror", None) or err
        raise FileError(
            f"{str(path)[:300]!r}: cannot be opened ({reason}); give a readable .gguf file"
        ) from None


def _parse(cursor: Cursor, path: Path) -> GgufHeader:
    version = _version(cursor)
    tensors = cursor.count(_MAX_TENSORS, 32, "tensor count")
    metadata = _metadata(cursor, cursor.count(_MAX_ENTRIES, 13, "metadata count"))
    alignment = _alignment(cursor, metadata)
    infos = [_tensor(cursor, i) for i in range(tensors)]
    start = -(-cursor.at // alignment) * alignment
    names, shapes, types, offsets, nbytes = zip(*infos, strict=True) if infos else ((),) * 5
    _refuse_duplicates(cursor.name, "tensor", names)
    for info in infos:
        _check_inside(cursor, info, start, alignment)
    return GgufHeader(
        path, version, metadata, names, shapes, types,
        np.array(offsets, np.int64), np.array(nbytes, np.int64), start, alignment, cursor.size,
    )  # fmt: skip


def _version(cursor: Cursor) -> int:
    magic = bytes(cursor.bytes[:4])
    if magic != b"GGUF":
        cursor.fail("magic", f"is {magic!r}, a GGUF file starts with b'GGUF'")
    cursor.at = 4
    version = cursor.number("I", "version")
    if version not in (2, 3):
        cursor.at = 4
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        big_endian = "the file is big-endian; convert it to little-endian"
        cursor.fail(
            "version", big_endian if swapped in (2, 3) else f"is {version}; 2 and 3 are read"
        )
    return version


def _metadata(cursor: Cursor, entries: int) -> dict:
    metadata = {}
    for i in range(entries):
        key = cursor.identifier(f"key {i}")
        if key in metadata:
            cursor.fail(key, "occurs twice; a key may occur once")
        metadata[key] = read_value(cursor, key)
    return metadata


def _alignment(cursor: Cursor, metadata: dict) -> int:
    alignment = metadata.get("general.alignment", 32)
    good = isinstance(alignment, int) and 1 <= alignment <= 2**20
    if not good or alignment & (alignment - 1):
        is_ = str(alignment)[:30]
        cursor.fail("general.alignment", f"is {is_}; a power of two up to 1048576 is right")
    return alignment


def _tensor(cursor: Cursor, index: int) -> tuple[str, tuple[int, ...], str, int, int]:
    name = cursor.identifier(f"name of tensor {index}")
    dims = cursor.number("I", f"{name} dimensions")
    if not 1 <= dims <= 4:
        cursor.fail(name, f"has {dims} dimensions; 1 to 4 exist")
    shape = tuple(cursor.number("Q", f"{name} shape") for _ in range(dims))
    kind = _type_row(cursor, cursor.number("I", f"{name} type"), name)
    offset = cursor.number("Q", f"{name} offset")
    return name, shape, kind["name"], offset, _tensor_bytes(cursor, name, shape, kind)


def _tensor_bytes(cursor: Cursor, name: str, shape: tuple[int, ...], kind: dict) -> int:
    elements = 1
    for size in shape:
        elements *= size
    block, block_bytes = int(kind["block"]), int(kind["block_bytes"])
    if not 0 < elements < 2**48:
        cursor.fail(name, f"has shape {shape}; sizes must be positive, their product below 2**48")
    if shape[0] % block:
        cursor.fail(name, f"has rows of {shape[0]}; {kind['name']} needs a multiple of {block}")
    return elements // block * block_bytes + elements // shape[0] * int(kind["row_bytes"] or 0)


@functools.cache
def _types() -> dict[int, dict]:
    return {int(row["ggml_type"]): row for row in mixes.tensor_types().values()}


def _type_row(cursor: Cursor, number: int, name: str) -> dict:
    row = _types().get(number) or _types().get(number - _INTERLEAVED)
    if not row:
        cursor.fail(name, f"has tensor type {number}, which no format in formats.csv has")
    return row


def _check_inside(cursor: Cursor, info: tuple, start: int, alignment: int) -> None:
    name, _, _, offset, nbytes = info
    if offset % alignment:
        cursor.fail(name, f"data offset {offset} is not a multiple of the alignment {alignment}")
    end = start + offset + nbytes
    if end > cursor.size:
        has = f"the file has {cursor.size}; is the download complete?"
        cursor.fail(name, f"data ends at byte {end} but {has}")


def _refuse_duplicates(file: str, what: str, names: tuple[str, ...]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    twice = next(name for name in names if name in seen or seen.add(name))
    raise FileError(f"{file}: {what} {twice[:120]!r} occurs twice; names must be unique")
