"""A run on a disk that fills up, told as JSON: ``python full_disk.py DISK``, the mount point of a small tmpfs."""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from runs_to_kill import one_model

from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.state import unpack


def fill(disk: Path, leave: int) -> None:
    space = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(max(0, space.f_bavail * space.f_frsize - leave)))


def error_of(action) -> OSError:
    try:
        action()
    except OSError as error:
        return error
    raise AssertionError("the disk was to be full")


def main(disk: Path) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        expected = one_model(elsewhere)
        size = max(path.stat().st_size for path in RunFolder(elsewhere).checkpoints())
    fill(disk, leave=int(2.7 * size) + 3 * 4096)  # for two checkpoints, and small files of a page each
    folder = RunFolder(disk / "run")
    error = error_of(lambda: one_model(folder.path))
    kept = folder.checkpoints()[0]
    report = {
        "error": str(error),
        "error_number": error.errno,
        "kept": kept.name,
        "kept_is_whole": unpack(kept.read_bytes())["loop"]["step"] == int(kept.name[5:15]),
        "unfinished": [path.name for path in folder.path.glob(".*.unfinished")],
        "steps_when_full": folder.steps_made,
    }
    (disk / "filler").unlink()
    result = one_model(folder.path)
    weights = zip(result.model.state_dict().values(), expected.model.state_dict().values(), strict=True)
    report["same"] = result.history == expected.history and all(torch.equal(*pair) for pair in weights)
    report["steps_made"] = folder.steps_made
    other, third = RunFolder(disk / "other"), RunFolder(disk / "third")
    with other, third:
        other.begin({}, resume=False)
        fill(disk, leave=0)
        report["no_step_counted"] = str(error_of(other.count_step))
        report["not_begun"] = str(error_of(lambda: third.begin({}, resume=False)))
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
