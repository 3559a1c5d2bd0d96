"""Files and folders that are written whole or not at all, so that a failure leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_UNFINISHED = re.compile(r"\..*\.unfinished")


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file beside its place, and move it there at the end.

    Whatever goes wrong, a full disk or Ctrl-C, the unfinished file is removed and ``path`` stays as it was.

    Args:
        path: Where the file will be; its folder is made if it is missing.

    Yields:
        The path to write to.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp(), "notes.txt")
        >>> with new_file(place) as unfinished:
        ...     _ = unfinished.write_text("a note")
        >>> [entry.name for entry in place.parent.iterdir()]
        ['notes.txt']
    """
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished_name(place.parent, place.name)
    try:
        yield unfinished
        _sync(unfinished)
        os.replace(unfinished, place)
    except OSError as error:
        _name_place(error, unfinished, place)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a folder's files in an unfinished folder, and move them to their place at the end.

    Whatever goes wrong, a full disk or Ctrl-C, the unfinished folder is removed and ``path`` stays as it was. A folder
    that exists keeps its identity, since it may be a mount point or someone's working folder: the files are moved into
    it.

    Args:
        path: A folder that does not exist, or one without files.

    Yields:
        The folder to write to.

    Raises:
        FileExistsError: ``path`` is a file, or a folder with files.
    """
    folder = Path(path)
    if holds_files(folder):
        raise FileExistsError(f"{folder} is there already; give a new or an empty folder")
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
        _name_place(error, unfinished, folder)
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_new_folder(path: str | os.PathLike[str]) -> None:
    """Check that `new_folder` can write there, before work is done whose result would be lost.

    Raises:
        OSError: The folder cannot be made, or nothing can be written to it.
    """
    folder = Path(path)
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = _unfinished_name(folder, "probe")
        probe.mkdir()
        probe.rmdir()
    finally:
        for parent in made:
            with suppress(OSError):  # one that was not made, or that another process uses meanwhile
                parent.rmdir()


def holds_files(path: Path) -> bool:
    """Whether a path is a file, or a folder with more than what a killed command left unfinished."""
    if not path.is_dir():
        return path.exists()
    return any(not _UNFINISHED.fullmatch(entry.name) for entry in path.iterdir())


def _unfinished_name(folder: Path, name: str) -> Path:
    return folder / f".{name[:100]}.{uuid.uuid4().hex[:8]}.unfinished"


def _name_place(error: OSError, unfinished: Path, place: Path) -> None:
    """Let the error name the place that the caller gave, not that of the unfinished file."""
    if error.filename is not None and Path(error.filename) == unfinished:
        error.filename = str(place)


def _sync(path: Path) -> None:
    """Have the file on the disk, where some file systems report only now that they are full."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
