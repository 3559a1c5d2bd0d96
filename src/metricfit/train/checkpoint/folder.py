"""A run's folder: what went in, checkpoints that survive a kill, a count of the steps made, and the result.

A checkpoint is one safetensors file, written beside its place, synced and moved there, so that it is whole or absent;
its name holds the step and the content's hash, so that a damaged one is noticed and the one before is taken. Nothing
is pickled. The file ``steps`` grows by one byte with every optimiser step, repeated ones included.
"""

from __future__ import annotations

import errno
import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from metricfit._files import hash_bytes, is_unfinished, to_json_value, write_file
from metricfit.errors import CheckpointError, InvalidValueError
from metricfit.train.checkpoint.lock import Lock
from metricfit.train.checkpoint.packing import DamagedError, pack, unpack
from metricfit.train.checkpoint.run_spec import find_differences

CHECKPOINT = re.compile(r"step-(\d{10})-([0-9a-f]{16})\.safetensors")
RESULT_FILES = ("result.safetensors", "report.json")
KEPT = 2


class CheckpointWarning(UserWarning):
    """A checkpoint could not be read, and an earlier one was taken."""


class RunFolder:
    """The folder of one run. ``with folder:`` lets go of it at the end; it is taken by ``begin``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = Lock(self.path / "lock")
        self._steps: BinaryIO | None = None
        self._damaged: list[Path] = []

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    @property
    def started(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "run.json").exists()

    @property
    def finished(self) -> bool:
        """Whether a run has come to its end here."""
        return (self.path / "finished").exists()

    def begin(self, spec: dict[str, Any], resume: bool) -> None:
        """Make the folder for a run with this spec, or check that the one there is of the same; hold it if there is
        training to do.
        """
        self.check(spec, resume)
        if self.finished:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock.take()
        try:
            self.check(spec, resume)  # another process may have been here in the meantime
            for path in self.path.iterdir():
                if is_unfinished(path):
                    path.unlink()
            if not self.started:
                self.write("run.json", json.dumps(spec, indent=2, sort_keys=True).encode())
        except BaseException:
            self._lock.release()
            raise

    def check(self, spec: dict[str, Any], resume: bool) -> None:
        """Refuse a folder that is not for this run, and change nothing."""
        if not self.started:
            others = list(self.path.iterdir()) if self.path.exists() else []
            if any(path.name != "lock" and not is_unfinished(path) for path in others):
                raise FileExistsError(f"{self.path} holds other files; give checkpoint_dir a folder of its own")
            return
        if not resume:
            raise FileExistsError(
                f"{self.path} holds a run already; resume=True continues it, or give another checkpoint_dir"
            )
        differences = find_differences(self._spec(), spec)
        if differences:
            raise InvalidValueError(
                f"{self.path} holds another run ({'; '.join(differences)}); resume with the settings and data it was "
                "started with, or give another checkpoint_dir"
            )

    def _spec(self) -> dict[str, Any]:
        try:
            spec = json.loads((self.path / "run.json").read_bytes())
            if isinstance(spec, dict):
                return spec
            problem = "it is no JSON object"
        except ValueError as error:
            problem = str(error)
        raise InvalidValueError(
            f"{self.path / 'run.json'} is damaged ({problem}), so the run's settings are not known. The checkpoints "
            "are untouched: to go on from them, start the same run in another folder, stop it and copy its run.json"
        )

    def count_step(self) -> None:
        """Note that an optimiser step was made."""
        try:
            if self._steps is None:
                self._steps = open(self.path / "steps", "ab", buffering=0)  # noqa: SIM115 (closed at the end)
            self._steps.write(b".")
        except OSError as error:
            raise self._explained(error, "the count of steps") from error

    @property
    def steps_made(self) -> int:
        """How many optimiser steps were made in this folder, repeated ones included."""
        return (self.path / "steps").stat().st_size if (self.path / "steps").exists() else 0

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then drop damaged ones and all but the last few."""
        content = pack(state)
        name = f"step-{step:010d}-{hash_bytes(content)}.safetensors"
        self.write(name, content)
        written = self.path / name
        for path in self._damaged:
            if path != written:  # the same step may have been made again, with the same content and name
                path.unlink(missing_ok=True)
        self._damaged = []
        for old in self.checkpoints()[KEPT:]:
            old.unlink(missing_ok=True)

    def load(self, check: Callable[[dict[str, Any], int], None] | None = None) -> dict[str, Any] | None:
        """Read the newest intact checkpoint, and warn of newer ones that are damaged.

        Args:
            check: Called with the state and the step in the file's name; raises DamagedError if they do not fit.

        Returns:
            The state, or None if the folder has no checkpoint.

        Raises:
            CheckpointError: There are checkpoints, but none is intact.
        """
        self._damaged = []
        problems = []
        for path in self.checkpoints():
            try:
                state = _read_checkpoint(path, check)
            except DamagedError as error:
                self._damaged.append(path)
                problems.append(f"{path.name} ({error})")
                continue
            if problems:
                warnings.warn(
                    f"{self.path} has damaged checkpoints: {', '.join(problems)}; the run continues from {path.name}, "
                    "the newest intact one",
                    CheckpointWarning,
                    stacklevel=2,
                )
            return state
        if problems:
            raise CheckpointError(
                f"no checkpoint in {self.path} is intact: {', '.join(problems)}. Restore the files from a copy if you "
                "have one. Otherwise delete them and run again with resume=True: the run then starts from the beginning"
            )
        return None

    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, newest first."""
        files = (path for path in self.path.iterdir() if CHECKPOINT.fullmatch(path.name) and path.is_file())
        return sorted(files, reverse=True)

    def finish(self, state: dict[str, Any], report: dict[str, Any]) -> None:
        """Write the result, a report with the spec for readers without this library, and last the mark that it is all
        there, with the files' hashes.
        """
        spec = self._spec()
        seed = {name: spec[name] for name in ("seed", "seeds") if name in spec}
        told = to_json_value({**report, **seed, "versions": spec.pop("versions", None), "spec": spec})
        report_json = json.dumps(told, indent=2, allow_nan=False).encode()
        files = dict(zip(RESULT_FILES, (pack(state), report_json), strict=True))
        for name, content in files.items():
            self.write(name, content)
        self.write("finished", json.dumps({name: hash_bytes(content) for name, content in files.items()}).encode())

    def result(self) -> dict[str, Any]:
        """What ``finish`` was given as state."""
        try:
            digests = json.loads((self.path / "finished").read_bytes())
            damaged = [name for name in RESULT_FILES if not _has_digest(self.path / name, digests.get(name))]
            if not damaged:
                return unpack((self.path / RESULT_FILES[0]).read_bytes())
        except DamagedError:
            damaged = [RESULT_FILES[0]]
        except (ValueError, AttributeError):
            damaged = ["finished"]
        raise CheckpointError(
            f"{' and '.join(damaged)} in {self.path} cannot be relied on, damaged or missing. Delete the file "
            "'finished' there and run again with resume=True: the result is then made anew from the last checkpoint"
        )

    def write(self, name: str, content: bytes) -> None:
        """A file that is whole or absent, whatever happens."""
        try:
            write_file(self.path / name, content)
        except OSError as error:
            raise self._explained(error, f"{name} ({len(content)} bytes)") from error

    def _explained(self, error: OSError, what: str) -> OSError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        why = f"no space left for {what}" if full else f"cannot write {what}: {error.strerror}"
        remedy = "Free some space" if full else "Set that right"
        kept = self.checkpoints()
        last = f"the last good checkpoint, {kept[0].name}, is untouched" if kept else "no checkpoint was there yet"
        return OSError(error.errno, f"{why}; {last}. {remedy} and run again with resume=True", str(self.path))


def _has_digest(path: Path, digest: object) -> bool:
    """Whether a file can be read and its content has this hash."""
    try:
        return hash_bytes(path.read_bytes()) == digest
    except OSError:
        return False


def _read_checkpoint(path: Path, check: Callable[[dict[str, Any], int], None] | None) -> dict[str, Any]:
    """The state in a checkpoint, whose name holds the step and the content's hash.

    Raises:
        DamagedError: The content is not the one that was written under this name.
    """
    named = CHECKPOINT.fullmatch(path.name)
    assert named is not None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"it cannot be read: {error.strerror}") from error
    if hash_bytes(content) != named[2]:
        what = f"its {len(content)} bytes do not have" if content else "it is empty and does not have"
        raise DamagedError(f"{what} the hash in its name")
    state = unpack(content)
    if check is not None:
        check(state, int(named[1]))
    return state


def folder_of(
    checkpoint_dir: str | os.PathLike[str] | None, checkpoint_every: int | None, resume: bool
) -> RunFolder | None:
    """The run's folder, if it has one."""
    if checkpoint_every is not None and checkpoint_every < 1:
        raise InvalidValueError(f"checkpoint_every is a number of steps, at least 1; got {checkpoint_every}")
    if checkpoint_dir is None:
        if resume or checkpoint_every is not None:
            given = "resume" if resume else "checkpoint_every"
            raise InvalidValueError(f"{given} needs a folder: give checkpoint_dir")
        return None
    return RunFolder(checkpoint_dir)
