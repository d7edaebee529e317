"""A scratch file that has no name on the disk: nothing is left behind however the probe ends."""

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from workbench.errors import FileError, SpecError
from workbench.units import human_bytes, parse

CHUNK = 2**22  # byte; of a write
_FLUSH = 16 * CHUNK  # byte that wait for the disk at most
_LEAST = 2**20
_SHARE = 0.5  # of what is free on the disk: a probe never fills it
_MACOS_NOCACHE = 48  # F_NOCACHE of macOS <sys/fcntl.h>; Python's fcntl has it on macOS alone


def checked_size(size: float | str, folder: str | Path) -> tuple[int, Path]:
    """Return the size in bytes and the folder, if there is room for it.

    Raises:
        SpecError: under 1 MiB.
        FileError: no such folder, or more than half of what is free there.
    """
    asked, path = parse(size, "byte", "size"), Path(folder)
    if asked < _LEAST:
        raise SpecError(f"size {human_bytes(asked)}: give at least {human_bytes(_LEAST)}")
    try:
        free = shutil.disk_usage(path).free
    except OSError as err:
        raise FileError(f"{path}: cannot be measured ({err.strerror})") from None
    if asked > free * _SHARE:
        raise FileError(
            f"{path}: {human_bytes(asked)} is more than half of the {human_bytes(free)} that are "
            "free; give a smaller size or another folder"
        )
    return int(asked), path


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[int]:
    """Open a file without a name in `folder` and yield its descriptor.

    Raises:
        FileError: the folder cannot be written, or the disk refuses or fills up meanwhile.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0, prefix=".workbench-") as file:
            yield file.fileno()
    except OSError as err:
        hint = {errno.ENOSPC: "; give a smaller size", errno.EDQUOT: "; give a smaller size"}
        why = f"{err.strerror}{hint.get(err.errno or 0, '')}"
        raise FileError(f"{folder}: the scratch file cannot be used there ({why})") from None


def fill(descriptor: int, size: int, more: Callable[[int], bool]) -> int:
    """Write bytes that do not compress, and see them reach the disk; return how many.

    Args:
        descriptor: of the file.
        size: bytes at most.
        more: told of the bytes written so far; False ends the file there.
    """
    block = np.random.default_rng(0).bytes(min(size, CHUNK))
    done = 0
    while done < size:
        done += os.write(descriptor, block[: size - done])
        if done >= size or done % _FLUSH == 0:  # or else the last one alone would take long
            os.fsync(descriptor)
        if not more(done):
            break
    return done


def forget(descriptor: int) -> bool:
    """Ask the kernel to drop the file from its page cache; return whether it can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def cached(descriptor: int, size: int, samples: int = 64) -> float:
    """Return the share of the file that the page cache holds, NaN where it cannot be asked."""
    if not hasattr(os, "RWF_NOWAIT"):
        return float("nan")
    page = [memoryview(aligned(mmap.PAGESIZE))]
    places = np.linspace(0, size - mmap.PAGESIZE, samples).astype(int) // mmap.PAGESIZE
    try:
        held = [_is_cached(descriptor, page, int(p) * mmap.PAGESIZE) for p in places]
    except OSError:  # file systems in memory do not support the question
        return float("nan")
    return float(np.mean(held))


def uncached_reads(descriptor: int) -> bool:
    """Make reads pass the page cache by; return whether the file system lets them."""
    import fcntl

    try:
        if hasattr(os, "O_DIRECT"):
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        else:
            fcntl.fcntl(descriptor, _MACOS_NOCACHE, 1)
    except OSError:  # tmpfs and some network file systems
        return False
    return True


def aligned(size: int) -> mmap.mmap:
    """Return a buffer that starts on a page, as direct reads need it."""
    return mmap.mmap(-1, size)


def kind(folder: Path) -> str:
    """Return the type of the file system that holds `folder`, "" if it is not known."""
    import psutil

    path = folder.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    holding = [mount for mount in mounts if path.is_relative_to(mount)]
    return mounts[max(holding, key=lambda mount: len(mount.parts))] if holding else ""


def _is_cached(descriptor: int, page: list, place: int) -> bool:
    try:
        return os.preadv(descriptor, page, place, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
