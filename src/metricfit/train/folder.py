"""A run's folder: what went in, checkpoints that survive a kill, a count of the steps made, and the result.

A checkpoint is one safetensors file, written beside its place, synced and moved there, so that it is whole or absent;
its name holds the step and the content's hash, so that a damaged one is noticed and the one before is taken. Nothing
is pickled. The file ``steps`` grows by one byte with every optimiser step, repeated ones included.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

CHECKPOINT = re.compile(r"step-(\d{10})-([0-9a-f]{16})\.safetensors")
KEPT = 2


class CheckpointWarning(UserWarning):
    """A checkpoint could not be read, and an earlier one was taken."""


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def started(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "run.json").exists()

    @property
    def finished(self) -> bool:
        """Whether a run has come to its end here."""
        return (self.path / "finished").exists()

    def begin(self, spec: dict[str, Any], resume: bool) -> None:
        """Make the folder for a run with this spec, or check that the one there is of the same."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.started:
            if any(self.path.iterdir()):
                raise FileExistsError(f"{self.path} holds other files; give checkpoint_dir a folder of its own")
            self.write("run.json", json.dumps(spec, indent=2, sort_keys=True).encode())
            return
        if not resume:
            raise FileExistsError(
                f"{self.path} holds a run already; resume=True continues it, or give another checkpoint_dir"
            )
        before = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        differing = [
            f"{key}: {before.get(key)!r} then, {spec.get(key)!r} now"
            for key in sorted(before.keys() | spec.keys())
            if before.get(key) != spec.get(key) and key != "versions"
        ]
        if differing:
            raise ValueError(
                f"{self.path} holds another run ({'; '.join(differing)}); resume with the settings it was started "
                "with, or give another checkpoint_dir"
            )

    def count_step(self) -> None:
        """Note that an optimiser step was made."""
        with open(self.path / "steps", "ab", buffering=0) as file:
            file.write(b".")

    @property
    def steps_made(self) -> int:
        """How many optimiser steps were made in this folder, repeated ones included."""
        return (self.path / "steps").stat().st_size if (self.path / "steps").exists() else 0

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then drop all but the last few."""
        content = pack(state)
        digest = hashlib.sha256(content).hexdigest()[:16]
        self.write(f"step-{step:010d}-{digest}.safetensors", content)
        for old in self.checkpoints()[KEPT:]:
            old.unlink(missing_ok=True)

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole; None if there is none."""
        damaged: list[str] = []
        for path in self.checkpoints():
            found = CHECKPOINT.fullmatch(path.name)
            content = path.read_bytes()
            if found and hashlib.sha256(content).hexdigest()[:16] == found[2]:
                state = unpack(content)
                if damaged:
                    warnings.warn(
                        f"the checkpoint {', '.join(damaged)} is damaged; going on from {path.name}, the one before",
                        CheckpointWarning,
                        stacklevel=2,
                    )
                return state
            damaged.append(path.name)
        if damaged:
            warnings.warn(
                f"every checkpoint is damaged ({', '.join(damaged)}); starting over", CheckpointWarning, stacklevel=2
            )
        return None

    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, newest first."""
        return sorted((path for path in self.path.iterdir() if CHECKPOINT.fullmatch(path.name)), reverse=True)

    def finish(self, state: dict[str, Any], report: dict[str, Any]) -> None:
        """Write the result, and last the mark that it is all there."""
        self.write("result.safetensors", pack(state))
        self.write("report.json", json.dumps(report, indent=2).encode())
        self.write("finished", b"")

    def result(self) -> dict[str, Any]:
        """What ``finish`` was given as state."""
        return unpack((self.path / "result.safetensors").read_bytes())

    def write(self, name: str, content: bytes) -> None:
        """A file that is whole or absent, whatever happens."""
        unfinished = self.path / f".{name}.unfinished"
        try:
            with open(unfinished, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self.path / name)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                kept = self.checkpoints()
                last = (
                    f"the last good checkpoint, {kept[0].name}, is untouched" if kept else "no checkpoint was there yet"
                )
                raise OSError(
                    error.errno,
                    f"no space left for {name} ({len(content)} bytes); {last}. Free some space and run again with "
                    "resume=True",
                    str(self.path),
                ) from error
            raise


def pack(state: dict[str, Any]) -> bytes:
    """Nested dictionaries, lists and plain values with tensors among them, as the bytes of a safetensors file."""
    tensors: dict[str, Tensor] = {}
    plain = _without_tensors(state, tensors)
    return to_bytes(tensors or {"": torch.zeros(0)}, metadata={"state": json.dumps(plain)})


def unpack(content: bytes) -> dict[str, Any]:
    """What ``pack`` was given."""
    size = int.from_bytes(content[:8], "little")
    plain = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["state"])
    state: dict[str, Any] = _with_tensors(plain, from_bytes(content))
    return state


def _without_tensors(given: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(given, Tensor):
        name = str(len(tensors))
        tensors[name] = given.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(given, dict):
        return {"dict": [[_without_tensors(part, tensors) for part in pair] for pair in given.items()]}
    if isinstance(given, (list, tuple)):
        return {type(given).__name__: [_without_tensors(each, tensors) for each in given]}
    if given is None or isinstance(given, (bool, int, float, str)):
        return given
    raise TypeError(f"a checkpoint holds tensors and plain values, not {type(given).__name__}: {given!r}")


def _with_tensors(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, inside),) = plain.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "dict":
        return {_with_tensors(key, tensors): _with_tensors(value, tensors) for key, value in inside}
    parts = [_with_tensors(each, tensors) for each in inside]
    return tuple(parts) if kind == "tuple" else parts
