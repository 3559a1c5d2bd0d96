"""Atomic writes of files and folders, hashes of contents, and values for JSON.

A file or folder is written under a temporary name, flushed to the disk and renamed, so that it is complete or absent.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_UNFINISHED = re.compile(r"\..*\.unfinished")


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that it is complete or absent, even if the process is killed.

    Args:
        path: The file's path. Missing parent folders are created.
        content: The content of the file.

    Raises:
        OSError: The file cannot be written; a file that was there before is unchanged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "notes.txt")
        >>> write_file(path, b"a note")
        >>> path.read_bytes()
        b'a note'
    """
    with new_file(path) as unfinished:
        unfinished.write_bytes(content)


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file under a temporary name in the same folder, and rename it at the end.

    After any failure, such as a full disk or Ctrl-C, the temporary file is removed and ``path`` is unchanged.

    Args:
        path: The file's path. Missing parent folders are created.

    Yields:
        The temporary path to write to.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "notes.txt")
        >>> with new_file(path) as unfinished:
        ...     _ = unfinished.write_text("a note")
        >>> [entry.name for entry in path.parent.iterdir()]
        ['notes.txt']
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished_name(target.parent, target.name)
    try:
        yield unfinished
        _sync(unfinished)
        os.replace(unfinished, target)
    except OSError as error:
        _name_target(error, unfinished, target)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write files to a temporary folder, and rename it at the end.

    After any failure, such as a full disk or Ctrl-C, the temporary folder is removed and ``path`` is unchanged. If
    ``path`` exists, the files are moved into it, because it may be a mount point or someone's working folder.

    Args:
        path: A folder that does not exist or has no files.

    Yields:
        The temporary folder to write to.

    Raises:
        FileExistsError: ``path`` is a file, or a folder with files.
    """
    folder = Path(path)
    if holds_files(folder):
        raise FileExistsError(f"{folder} exists already; choose a new or an empty folder")
    exists = folder.is_dir()
    unfinished = _unfinished_name(folder if exists else folder.parent, folder.name)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        for entry in unfinished.rglob("*"):
            if entry.is_file():
                _sync(entry)
        if exists:
            for entry in list(unfinished.iterdir()):
                os.replace(entry, folder / entry.name)
        else:
            os.rename(unfinished, folder)
    except OSError as error:
        _name_target(error, unfinished, folder)
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_new_folder(path: str | os.PathLike[str]) -> None:
    """Check that `new_folder` can write to a path, before work is done whose result would be lost.

    Args:
        path: The folder that will be written.

    Raises:
        OSError: The folder cannot be created, or nothing can be written to it.
    """
    folder = Path(path)
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = _unfinished_name(folder, "probe")
        probe.mkdir()
        probe.rmdir()
    finally:
        for parent in created:
            with suppress(OSError):  # not created, or already used by another process
                parent.rmdir()


def holds_files(path: Path) -> bool:
    """Check whether a path is a file, or a folder with files other than temporary ones of a killed process."""
    if not path.is_dir():
        return path.exists()
    return any(not is_unfinished(entry) for entry in path.iterdir())


def is_unfinished(path: Path) -> bool:
    """Check whether a path is a temporary file or folder that a killed process left behind."""
    return _UNFINISHED.fullmatch(path.name) is not None


def hash_bytes(content: bytes, length: int = 16) -> str:
    """Hash a content with SHA-256.

    Args:
        content: The bytes to hash.
        length: Number of hexadecimal digits to keep; the whole hash has 64.

    Returns:
        The first digits of the hash.

    Example:
        >>> hash_bytes(b"metricfit", length=8)
        'ec908c4b'
    """
    return hashlib.sha256(content).hexdigest()[:length]


def parse_json(content: str | bytes) -> Any:
    """Read JSON from a file that may come from anybody.

    Raises:
        ValueError: It is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_json_value(value: Any) -> Any:
    """Convert a value to what strict JSON can hold.

    Args:
        value: A value, or mappings and sequences of values.

    Returns:
        The same with None instead of NaN and infinities, Python numbers instead of NumPy's and torch's, and text
        instead of all other types.

    Example:
        >>> to_json_value({"loss": float("nan"), "shape": (2, 3)})
        {'loss': None, 'shape': [2, 3]}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json_value(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(entry) for entry in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _unfinished_name(folder: Path, name: str) -> Path:
    return folder / f".{name[:100]}.{uuid.uuid4().hex[:8]}.unfinished"


def _name_target(error: OSError, unfinished: Path, target: Path) -> None:
    """Make the error name the path that the caller passed instead of the temporary one."""
    if error.filename is not None and Path(error.filename) == unfinished:
        error.filename = str(target)


def _sync(path: Path) -> None:
    """Flush a file to the disk; some file systems report only now that they are full."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
