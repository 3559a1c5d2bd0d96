"""A lock for one process at a time, which the system releases when the process is killed."""

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
    """A lock file that one process holds at a time, and only once within that process.

    It is a POSIX record lock: the system releases it when the process ends for any reason, and forked processes, such
    as the workers of a DataLoader, do not keep it. If the file system has no locks, the user is warned. On Windows
    nothing is locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.file: BinaryIO | None = None

    def take(self) -> None:
        """Acquire the lock, or raise BlockingIOError."""
        if self.path in _held:
            raise self._make_error("this process")
        if fcntl is None:
            return
        file = open(self.path, "a+b", buffering=0)  # noqa: SIM115 (open while the lock is held)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read(20).decode(errors="replace").strip()
            file.close()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise self._make_error(f"process {holder}" if holder else "another process") from None
            warnings.warn(
                f"{self.path} cannot be locked ({error.strerror}): make sure that only one run at a time writes there",
                stacklevel=2,
            )
            return
        self.file = file
        _held.add(self.path)
        file.truncate(0)
        with suppress(OSError):  # the number is only for the message; a full disk is reported where it matters
            file.write(str(os.getpid()).encode())

    def release(self) -> None:
        """Release the lock if it is held."""
        if self.file is not None:
            _held.discard(self.path)
            self.file.close()
            self.file = None

    def _make_error(self, holder: str) -> BlockingIOError:
        return BlockingIOError(
            errno.EAGAIN,
            f"{holder} is training in this folder now; wait for it, or choose another checkpoint_dir",
            str(self.path.parent),
        )
