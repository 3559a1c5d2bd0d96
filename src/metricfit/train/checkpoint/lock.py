"""One process at a time: a lock that a killed process lets go of."""

from __future__ import annotations

import errno
import os
import warnings
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_held: set[Path] = set()


class Lock:
    """A file that one process at a time holds, and within it one holder.

    It is a POSIX record lock: the system takes it back when the process ends, however it ends, and processes that were
    forked from it, such as the workers of a DataLoader, do not keep it. Where the file system knows no locks the user
    is warned; on Windows nothing is locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.file: BinaryIO | None = None

    def take(self) -> None:
        """Hold it, or raise BlockingIOError."""
        if self.path in _held:
            raise self._refused("this process")
        if fcntl is None:
            return
        file = open(self.path, "a+b", buffering=0)  # noqa: SIM115 (open as long as it is held)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read(20).decode(errors="replace").strip()
            file.close()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise self._refused(f"process {holder}" if holder else "another process") from None
            warnings.warn(
                f"{self.path} cannot be locked ({error.strerror}): take care that one run at a time writes there",
                stacklevel=2,
            )
            return
        self.file = file
        _held.add(self.path)
        file.truncate(0)
        with suppress(OSError):  # the number is for the message alone; a full disk is told of where it matters
            file.write(str(os.getpid()).encode())

    def release(self) -> None:
        """Let go, if it is held."""
        if self.file is not None:
            _held.discard(self.path)
            self.file.close()
            self.file = None

    def _refused(self, holder: str) -> BlockingIOError:
        return BlockingIOError(
            errno.EAGAIN,
            f"{holder} is training in this folder now; wait for it, or give another checkpoint_dir",
            str(self.path.parent),
        )
