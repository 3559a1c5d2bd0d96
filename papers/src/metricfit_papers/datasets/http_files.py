"""Files from the internet: resumed after an interruption, checked, and complete or absent.

The environment variable ``METRICFIT_DATA_MIRROR`` names a server that is asked instead of the publishers: an address
``https://HOST/PATH`` is then ``MIRROR/HOST/PATH``. It helps where only an internal server can be reached.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from metricfit import __version__
from metricfit.errors import MetricfitError

MIRROR = "METRICFIT_DATA_MIRROR"
#: Seconds without an answer after which a server counts as unreachable.
TIMEOUT = 30.0
#: Number of times that a broken connection is opened again.
ATTEMPTS = 5
CHUNK = 2**20
NOT_SATISFIABLE = 416
PARTIAL = 206
#: A function of the file's name, the bytes that are there, and the bytes of the whole file if the server says so.
Watch = Callable[[str, int, "int | None"], None]


class DownloadError(MetricfitError, OSError):
    """A file cannot be downloaded; the message says why, and what was kept."""


class _BrokenConnectionError(Exception):
    """The connection ended before the file was complete."""


@dataclass(frozen=True)
class _Part:
    """An unfinished download, and the server's mark of the version that it is a part of."""

    path: Path

    @property
    def mark_path(self) -> Path:
        return self.path.with_name(self.path.name + ".version")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def mark(self) -> str:
        return self.mark_path.read_text(encoding="utf-8") if self.mark_path.is_file() else ""

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.mark_path.unlink(missing_ok=True)


def download_file(url: str, path: Path, *, checksum: str | None = None, watch: Watch | None = None) -> Path:
    """Download a file; one that is there and has the checksum is kept.

    The bytes are collected in ``NAME.part``. A later call continues there, if the server still has the same version.

    Args:
        url: The public address.
        path: Where the file goes. Missing parent folders are created.
        checksum: The expected hash, such as ``md5:0123...``; None if it is not known.
        watch: Called after every piece.

    Returns:
        The path.

    Raises:
        DownloadError: The server cannot be reached or refuses, or the content is not the expected one.
    """
    if path.is_file() and (checksum is None or hash_file(path, checksum) == checksum):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(path.with_name(path.name + ".part"))
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive(url, part, checksum is not None, watch)
            break
        except _BrokenConnectionError as error:
            if attempt == ATTEMPTS:
                raise DownloadError(
                    f"{url}: {error}. {part.size():,} bytes are in {part.path}; run the command again to continue"
                ) from error
    if checksum is not None and (measured := hash_file(part.path, checksum)) != checksum:
        part.remove()
        raise DownloadError(
            f"{url} is not the expected file: its hash is {measured}, not {checksum}. It was removed. Try again; if it "
            "differs again, the publisher has changed the file"
        )
    os.replace(part.path, path)
    part.remove()
    return path


def hash_file(path: Path, checksum: str) -> str:
    """Return the hash of a file, by the algorithm of a checksum.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "empty")
    >>> path.touch()
    >>> hash_file(path, "md5:")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    algorithm = checksum.partition(":")[0]
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return f"{algorithm}:{digest.hexdigest()}"


def _receive(url: str, part: _Part, verified: bool, watch: Watch | None) -> None:
    """Add the missing bytes to an unfinished download, or start it again if the server cannot continue."""
    mark = part.mark()
    if part.size() and not (mark or verified):
        part.remove()  # nothing says that the server still has the version of this part
    response = _open(url, part, mark)
    with response:
        size = part.size() if response.status == PARTIAL else 0
        if response.status == PARTIAL and not response.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
            part.remove()
            raise _BrokenConnectionError("the server sent another range than the one that was asked for")
        part.mark_path.write_text(_version_mark(response.headers), encoding="utf-8")
        length = response.headers.get("Content-Length")
        total = None if length is None else size + int(length)
        name = part.path.name.removesuffix(".part")
        with part.path.open("ab" if size else "wb") as file:
            try:
                while piece := response.read(CHUNK):
                    file.write(piece)
                    size += len(piece)
                    if watch is not None:
                        watch(name, size, total)
            except (HTTPException, OSError) as error:
                raise _BrokenConnectionError(f"the connection broke after {size:,} bytes ({error})") from error
    if total is not None and size < total:
        raise _BrokenConnectionError(f"the connection ended after {size:,} of {total:,} bytes")


def _open(url: str, part: _Part, mark: str) -> Any:
    """Ask the server for the bytes after those that are there."""
    headers = {"User-Agent": f"metricfit-papers/{__version__}"}
    if part.size():
        headers |= {"Range": f"bytes={part.size()}-"} | ({"If-Range": mark} if mark else {})
    address = _mirrored(url)
    try:
        return urlopen(Request(address, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == NOT_SATISFIABLE and part.size():
            part.remove()
            raise _BrokenConnectionError("the server has no such range") from error
        raise DownloadError(
            f"{address} answers {error.code} ({error.reason}); the publisher may have moved the file. Download it with "
            "a browser: metricfit datasets says from where"
        ) from error
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        kept = f" {part.size():,} bytes are in {part.path} and are kept." if part.size() else ""
        raise DownloadError(
            f"{address} cannot be reached ({reason}).{kept} Is there a network? Behind a proxy, set HTTPS_PROXY; "
            f"{MIRROR} names another server"
        ) from error


def _mirrored(url: str) -> str:
    mirror = os.environ.get(MIRROR, "").rstrip("/")
    return f"{mirror}/{url.partition('://')[2]}" if mirror else url


def _version_mark(headers: Any) -> str:
    """Return the server's mark of a version that a later request may name: a strong ETag, or the time of a change."""
    tag = headers.get("ETag", "")
    return str(tag if tag and not tag.startswith("W/") else headers.get("Last-Modified") or "")
