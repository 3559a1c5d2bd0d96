"""The folder of a run: its specification, checkpoints, a count of optimiser steps, and the result.

A checkpoint is one safetensors file that is written atomically. Its name contains the step and the hash of its content,
so that a damaged checkpoint is detected and the previous one is used. It also holds the hash of the run's settings,
so that a checkpoint of another run is never used. Nothing is pickled. The file ``steps`` grows by
one byte with every optimiser step, including repeated ones.
"""

from __future__ import annotations

import errno
import json
import os
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from metricfit._files import hash_bytes, is_unfinished, to_json_value, write_file
from metricfit.errors import CheckpointError, InvalidValueError, shorten
from metricfit.train.checkpoint.run_spec import find_differences, identify
from metricfit.train.checkpoint.state import DamagedError, RunState, pack, unpack

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_held: set[Path] = set()

CHECKPOINT = re.compile(r"step-(\d{10})-([0-9a-f]{16})\.safetensors")
RESULT_FILES = ("result.safetensors", "report.json")
CHECKPOINTS_KEPT = 2


class CheckpointWarning(UserWarning):
    """A checkpoint could not be read, and an earlier one is used.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", CheckpointWarning)  # stop instead
    """


class RunFolder:
    """The folder of one run. ``begin`` locks it, and leaving ``with folder:`` releases it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: BinaryIO | None = None
        self._steps: BinaryIO | None = None
        self._damaged: list[Path] = []
        self.run = ""  # what identifies the run, once it has begun

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            _held.discard((self.path / "lock").resolve())
        for file in filter(None, (self._lock, self._steps)):
            file.close()
        self._lock = self._steps = None

    @property
    def started(self) -> bool:
        """Whether a run was started in this folder."""
        return (self.path / "run.json").exists()

    @property
    def finished(self) -> bool:
        """Whether a run was finished in this folder."""
        return (self.path / "finished").exists()

    def begin(self, spec: dict[str, Any], resume: bool) -> None:
        """Create the folder for a run, or check that it holds the same run; lock it unless the run is finished.

        Args:
            spec: The specification of the run.
            resume: Whether the folder may hold the run already.
        """
        self.check(spec, resume)
        if self.finished:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            self.check(spec, resume)  # another process may have used the folder in the meantime
            for path in self.path.iterdir():
                if is_unfinished(path):
                    path.unlink()
            if not self.started:
                self.write("run.json", json.dumps(spec, indent=2, sort_keys=True).encode())
        except BaseException:
            self.__exit__()
            raise

    def _take_lock(self) -> None:
        """Lock the folder for one process, and only once within that process.

        It is a POSIX record lock: the system releases it when the process ends for any reason, and forked processes,
        such as the workers of a DataLoader, do not keep it. On Windows, and on a file system without locks, nothing is
        locked.
        """
        path = (self.path / "lock").resolve()
        holder = "this process" if path in _held else None
        if holder is None and fcntl is not None:
            file = open(path, "ab")  # noqa: SIM115 (open while the lock is held)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock = file
                _held.add(path)
            except OSError as error:
                file.close()
                holder = "another process" if error.errno in (errno.EACCES, errno.EAGAIN) else None
        if holder is not None:
            why = f"{holder} is training in this folder now; wait for it, or choose another checkpoint_dir"
            raise BlockingIOError(errno.EAGAIN, why, str(self.path))

    def check(self, spec: dict[str, Any], resume: bool) -> None:
        """Check that the folder is empty or holds this run; nothing in it is changed."""
        self.run = identify(spec)
        if not self.started:
            files = list(self.path.iterdir()) if self.path.exists() else []
            if any(path.name != "lock" and not is_unfinished(path) for path in files):
                raise FileExistsError(f"{self.path} holds other files; use a separate folder as checkpoint_dir")
            return
        if not resume:
            raise FileExistsError(
                f"{self.path} holds a run already; resume=True continues it, or choose another checkpoint_dir"
            )
        differences = find_differences(self._read_spec(), spec)
        if differences:
            raise InvalidValueError(
                f"{self.path} holds another run ({'; '.join(differences)}); resume with the settings and data it was "
                "started with, or choose another checkpoint_dir"
            )

    def _read_spec(self) -> dict[str, Any]:
        try:
            spec = json.loads((self.path / "run.json").read_bytes())
            if isinstance(spec, dict):
                return spec
            problem = "it is not a JSON object"
        except (ValueError, RecursionError) as error:
            problem = shorten(error)
        raise CheckpointError(
            f"{self.path / 'run.json'} is damaged ({problem}), so the run's settings are not known. The checkpoints "
            "are unchanged: to continue from them, start the same run in another folder, stop it and copy its run.json"
        )

    def count_step(self) -> None:
        """Count one optimiser step."""
        try:
            if self._steps is None:
                self._steps = open(self.path / "steps", "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)
            self._steps.write(b".")
        except OSError as error:
            raise self._explain(error, "the count of steps") from error

    @property
    def steps_made(self) -> int:
        """Number of optimiser steps in this folder, including repeated ones."""
        return (self.path / "steps").stat().st_size if (self.path / "steps").exists() else 0

    def save(self, state: RunState) -> None:
        """Write a checkpoint, then delete damaged ones and all but the newest."""
        content = pack({"run": self.run, **state.to_saved()})
        name = f"step-{state.loop.step:010d}-{hash_bytes(content)}.safetensors"
        self.write(name, content)
        written = self.path / name
        for path in self._damaged:
            if path != written:  # a repeated step may have the same content and name
                path.unlink(missing_ok=True)
        self._damaged = []
        for old in self.checkpoints()[CHECKPOINTS_KEPT:]:
            old.unlink(missing_ok=True)

    def load(self) -> RunState | None:
        """Read the newest intact checkpoint, and warn about newer ones that are damaged.

        Returns:
            The state, or None if the folder has no checkpoint.

        Raises:
            CheckpointError: There are checkpoints, but none is intact.
        """
        self._damaged = []
        problems = []
        for path in self.checkpoints():
            try:
                state = self._read(path)
            except DamagedError as error:
                self._damaged.append(path)
                problems.append(f"{path.name} ({error})")
                continue
            if problems:
                warnings.warn(
                    f"{self.path} has damaged checkpoints: {', '.join(problems)}; the run continues from {path.name}, "
                    "the newest intact one",
                    CheckpointWarning,
                    stacklevel=3,
                )
            return state
        if problems:
            raise CheckpointError(
                f"no checkpoint in {self.path} is intact: {', '.join(problems)}. Restore the files from a copy if you "
                "have one. Otherwise delete them and run again with resume=True: the run then starts from the beginning"
            )
        return None

    def _read(self, path: Path) -> RunState:
        """Read the state in a checkpoint, whose name holds the step and the hash of its content.

        Raises:
            DamagedError: The content is not the one that was written under this name, or it is of another run.
        """
        match = CHECKPOINT.fullmatch(path.name)
        assert match is not None
        content = path.read_bytes()
        if hash_bytes(content) != match[2]:
            problem = f"its {len(content)} bytes do not have" if content else "it is empty and does not have"
            raise DamagedError(f"{problem} the hash in its name")
        saved = unpack(content)
        if saved.get("run") != self.run:
            raise DamagedError("it belongs to another run")
        state = RunState.read(saved)
        if state.loop.step != int(match[1]):
            raise DamagedError(f"it belongs to step {state.loop.step}, not to the step in its name")
        return state

    def checkpoints(self) -> list[Path]:
        """List the checkpoints, newest first."""
        files = (path for path in self.path.iterdir() if CHECKPOINT.fullmatch(path.name) and path.is_file())
        return sorted(files, reverse=True)

    def finish(self, state: dict[str, Any], report: dict[str, Any]) -> None:
        """Write the result, a readable report with the spec, and last the file ``finished`` with their hashes."""
        spec = self._read_spec()
        seed = {name: spec[name] for name in ("seed", "seeds") if name in spec}
        content = to_json_value({**report, **seed, "versions": spec.pop("versions", None), "spec": spec})
        report_json = json.dumps(content, indent=2, allow_nan=False).encode()
        files = dict(zip(RESULT_FILES, (pack(state), report_json), strict=True))
        for name, content in files.items():
            self.write(name, content)
        self.write("finished", json.dumps({name: hash_bytes(content) for name, content in files.items()}).encode())

    def result(self) -> dict[str, Any]:
        """Return the state that was passed to ``finish``."""
        try:
            digests = json.loads((self.path / "finished").read_bytes())
            damaged = [name for name in RESULT_FILES if not _has_digest(self.path / name, digests.get(name))]
            if not damaged:
                return unpack((self.path / RESULT_FILES[0]).read_bytes())
        except DamagedError:
            damaged = [RESULT_FILES[0]]
        except (ValueError, AttributeError, RecursionError):
            damaged = ["finished"]
        raise CheckpointError(
            f"{' and '.join(damaged)} in {self.path} cannot be used: damaged or missing. Delete the file "
            "'finished' there and run again with resume=True: the result is then computed from the last checkpoint"
        )

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically; errors say what remains and how to continue."""
        try:
            write_file(self.path / name, content)
        except OSError as error:
            raise self._explain(error, f"{name} ({len(content)} bytes)") from error

    def _explain(self, error: OSError, file: str) -> OSError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        why = f"no space left for {file}" if full else f"cannot write {file}: {error.strerror}"
        remedy = "Free some space" if full else "Correct this"
        newest = next((path.name for path in self.checkpoints()), None)
        last = "there was no checkpoint yet" if newest is None else f"the last good checkpoint, {newest}, is unchanged"
        return OSError(error.errno, f"{why}; {last}. {remedy} and run again with resume=True", str(self.path))


def _has_digest(path: Path, digest: object) -> bool:
    """Check that a file can be read and its content has this hash."""
    try:
        return hash_bytes(path.read_bytes()) == digest
    except OSError:
        return False
