"""Atomic writes of files and folders, hashes of contents, and values for JSON.

A file or folder is written under a temporary name, flushed to the disk and renamed, so that it is complete or absent.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

#: Seconds after which the process of a temporary name is taken for killed: a day.
STALE_AFTER = 86_400.0
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
        unfinished.touch(exist_ok=False)
        yield unfinished
        _sync(unfinished)
        os.replace(unfinished, target)
        _remove_stale(target.parent, target.name)
    except OSError as error:
        _name_target(error, unfinished, target)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Write files to a temporary folder, and rename it at the end.

    After any failure, such as a full disk or Ctrl-C, the temporary folder is removed and ``path`` is unchanged. An
    empty folder is replaced at once. If it cannot be replaced, because it is a mount point or the working folder, the
    files are moved into it one by one, and the manifest last.

    Args:
        path: A folder that does not exist or has no files.
        overwrite: Whether to replace a folder with files, once the new one is complete.

    Yields:
        The temporary folder to write to.

    Raises:
        FileExistsError: ``path`` is a file, or a folder with files.
    """
    folder = Path(os.path.realpath(path))
    replaces = overwrite and folder.is_dir()
    if not replaces:
        _refuse_files_in(folder, path)
    home = _home_of(folder)
    unfinished = _unfinished_name(home, folder.name)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        for entry in unfinished.rglob("*"):
            if entry.is_file():
                _sync(entry)
        if not replaces:
            _refuse_files_in(folder, path)  # another process may have been faster
        _put_in_place(unfinished, folder, home)
        _remove_stale(home, folder.name)
    except OSError as error:
        _name_target(error, unfinished, Path(path))
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file or folder can be written, before the work begins whose result will be written there.

    Args:
        path: The file or folder that will be written.

    Raises:
        OSError: The path cannot be written.
    """
    target = Path(os.path.realpath(path))
    home = _home_of(target)
    created = [parent for parent in (home, *home.parents) if not parent.exists()]
    probe = _unfinished_name(home, target.name)
    try:
        home.mkdir(parents=True, exist_ok=True)
        target.exists()  # an error if the name is too long
        probe.touch()
    except OSError as error:
        _name_target(error, probe, Path(path))
        raise
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        for parent in created:
            with suppress(OSError):  # not created, or used by now
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
        value: A value, or mappings, sequences and dataclasses of values.

    Returns:
        The same with None instead of NaN and infinities, Python numbers instead of NumPy's and torch's, and text
        instead of all other types.

    Example:
        >>> to_json_value({"loss": float("nan"), "shape": (2, 3)})
        {'loss': None, 'shape': [2, 3]}
    """
    if is_dataclass(value):
        value = {entry.name: getattr(value, entry.name) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_value(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(entry) for entry in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def list_differences(before: Any, now: Any, path: str = "", ignored: Collection[str] = ()) -> Iterator[str]:
    """Describe where two plain values differ, one phrase for each place.

    >>> list(list_differences({"rows": 3, "folds": [1, 2]}, {"rows": 4, "folds": [1, 2]}))
    ['rows: 3 then, 4 now']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted((before.keys() | now.keys()) - set(ignored)):
            yield from list_differences(before.get(key), now.get(key), f"{path}.{key}" if path else key, ignored)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from list_differences(*pair, f"{path}[{index}]", ignored)
    elif before != now:
        yield f"{path}: {before!r} then, {now!r} now"


def _unfinished_name(folder: Path, name: str) -> Path:
    return folder / f".{name[:100]}.{uuid.uuid4().hex[:8]}.unfinished"


def _home_of(target: Path) -> Path:
    """Return the folder for temporary names: beside the target, or inside if the target cannot be replaced."""
    if target.is_dir():
        is_used = os.path.ismount(target) or target == Path(os.path.realpath(os.curdir))
        if is_used or not os.access(target.parent, os.W_OK):
            return target
    return target.parent


def _refuse_files_in(folder: Path, path: str | os.PathLike[str]) -> None:
    if holds_files(folder):
        raise FileExistsError(f"{os.fspath(path)} exists already; choose a new or an empty folder")


def _put_in_place(unfinished: Path, folder: Path, home: Path) -> None:
    """Give a complete folder its name."""
    if home == folder:
        for entry in folder.iterdir():
            if not is_unfinished(entry):
                _remove(entry)
        for entry in sorted(unfinished.iterdir(), key=lambda entry: entry.name == "manifest.json"):
            os.replace(entry, folder / entry.name)
        return
    if folder.is_dir():
        for entry in folder.iterdir():  # what is replaced, and what killed processes left behind
            _remove(entry)
        shutil.copymode(folder, unfinished)
        if os.name == "nt":  # renaming replaces an empty folder on all other systems
            folder.rmdir()
    os.rename(unfinished, folder)


def _remove_stale(home: Path, name: str) -> None:
    """Remove what killed processes left behind when they wrote to the same name."""
    stale = re.compile(rf"\.{re.escape(name[:100])}\.[0-9a-f]{{8}}\.unfinished")
    for entry in home.iterdir():
        with suppress(OSError):  # another process removes it too, or it belongs to someone else
            if stale.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > STALE_AFTER:
                _remove(entry)


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def _name_target(error: OSError, unfinished: Path, target: Path) -> None:
    """Make an error name the path that the caller passed instead of the temporary one, or of no path."""
    name = str(unfinished)
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
        error.filename = str(target)
    elif isinstance(error.filename, str) and error.filename.startswith(name):
        error.filename = str(target) + error.filename.removeprefix(name)
    error.args = tuple(each.replace(name, str(target)) if isinstance(each, str) else each for each in error.args)


def _sync(path: Path) -> None:
    """Flush a file to the disk; some file systems report only now that they are full."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
