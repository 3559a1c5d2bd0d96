"""Files and folders are written whole or not at all."""

import errno
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

from metricfit._files import check_writable, holds_files, is_unfinished, new_file, new_folder

FAILURES = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), ValueError("a mistake")]


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_and_a_folder_are_written_and_leave_no_temporary_files(tmp_path):
    with new_file(tmp_path / "made" / "a.txt") as unfinished:
        unfinished.write_text("a")
        assert not (tmp_path / "made" / "a.txt").exists()
    with new_folder(tmp_path / "b") as unfinished:
        (unfinished / "inside").mkdir()
        (unfinished / "inside" / "c.txt").write_text("c")
        assert not (tmp_path / "b").exists()
    assert names(tmp_path) == ["b", "b/inside", "b/inside/c.txt", "made", "made/a.txt"]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_failure_leaves_nothing_and_the_next_attempt_works(tmp_path, failure):
    (tmp_path / "empty").mkdir()
    before = names(tmp_path)
    for place, write in (
        (tmp_path / "a.txt", new_file),
        (tmp_path / "b", new_folder),
        (tmp_path / "empty", new_folder),
    ):
        with pytest.raises(type(failure)), write(place) as unfinished:  # noqa: PT012
            (unfinished if write is new_file else unfinished / "part").write_text("half")
            raise failure
        assert names(tmp_path) == before
    with new_folder(tmp_path / "b") as unfinished:
        (unfinished / "part").write_text("whole")
    assert (tmp_path / "b" / "part").read_text() == "whole"


def test_a_file_that_is_there_survives_a_failed_attempt_to_replace_it(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(OSError, match="full"), new_file(tmp_path / "a.txt") as unfinished:  # noqa: PT012
        unfinished.write_text("new")
        raise OSError("full")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_an_empty_folder_is_replaced_at_once(tmp_path, monkeypatch):
    (tmp_path / "b").mkdir(mode=0o700)
    (tmp_path / "b" / ".b.12345678.unfinished").mkdir()  # of a command that was killed
    (tmp_path / "link").symlink_to(tmp_path / "b")
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("files were moved one by one"))
    with new_folder(tmp_path / "link") as unfinished:
        (unfinished / "part").write_text("whole")
        (unfinished / "other").write_text("whole")
        assert not holds_files(tmp_path / "b")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path) == ["b", "b/other", "b/part", "link"]
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700


def test_the_working_folder_keeps_its_identity_and_gets_its_manifest_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inode, moved, replace = tmp_path.stat().st_ino, [], os.replace
    monkeypatch.setattr(os, "replace", lambda source, target: (moved.append(target.name), replace(source, target)))
    with new_folder(".") as unfinished:
        for name in ("manifest.json", "a", "z"):
            (unfinished / name).write_text("whole")
    assert tmp_path.stat().st_ino == inode
    assert names(tmp_path) == ["a", "manifest.json", "z"]
    assert moved[-1] == "manifest.json"


def test_what_a_killed_process_left_behind_is_removed_by_the_next_write(tmp_path):
    script = (
        "import os, sys\nfrom metricfit._files import new_file, new_folder\n"
        "write = {'file': new_file, 'folder': new_folder}[sys.argv[1]]\n"
        "with write(sys.argv[2]) as unfinished:\n    os.kill(os.getpid(), 9)\n"
    )
    for kind, write in (("file", new_file), ("folder", new_folder)):
        place = tmp_path / kind
        subprocess.run([sys.executable, "-c", script, kind, str(place)], check=False)
        (left,) = [name for name in names(tmp_path) if is_unfinished(tmp_path / name)]
        other = tmp_path / left.replace(f".{kind}.", ".another.")
        other.mkdir()
        for name in (left, other.name):
            os.utime(tmp_path / name, (0, 0))
        with write(place) as in_use:
            with write(tmp_path / kind) if kind == "file" else nullcontext():  # another process writes the same file
                pass
            assert in_use.exists()
            (in_use if kind == "file" else in_use / "part").write_text("whole")
        assert [name for name in names(tmp_path) if is_unfinished(tmp_path / name)] == [other.name]
        other.rmdir()


def test_of_two_that_write_one_folder_the_second_changes_nothing(tmp_path):
    with pytest.raises(FileExistsError, match="choose a new"), new_folder(tmp_path / "b") as slow:  # noqa: PT012
        (slow / "part").write_text("slow")
        with new_folder(tmp_path / "b") as fast:
            (fast / "part").write_text("fast")
    assert names(tmp_path) == ["b", "b/part"]
    assert (tmp_path / "b" / "part").read_text() == "fast"


def test_only_finished_files_block_a_folder(tmp_path):
    assert not holds_files(tmp_path / "absent")
    assert not holds_files(tmp_path)
    (tmp_path / ".b.12345678.unfinished").mkdir()  # of a command that was killed
    assert not holds_files(tmp_path)
    (tmp_path / "note").write_text("a")
    assert holds_files(tmp_path)
    assert holds_files(tmp_path / "note")
    with pytest.raises(FileExistsError, match="choose a new or an empty folder"), new_folder(tmp_path):
        pass


def test_a_place_where_no_folder_can_be_created_is_reported_before_the_work(tmp_path):
    (tmp_path / "c").mkdir()
    with pytest.raises(OSError, match="File name too long"):
        check_writable(tmp_path / "d" / ("e" * 300))
    assert names(tmp_path) == ["c"]


def test_an_error_names_the_place_that_was_asked_for(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    inside = PermissionError(errno.EACCES, "Permission denied", "")
    for error, name in ((full, "out"), (inside, "out/model/arrays"), (OSError("cannot open 'TEMPORARY/a'"), "")):
        with pytest.raises(OSError) as caught, new_folder(tmp_path / "out") as unfinished:  # noqa: PT011, PT012
            if error is inside:
                error.filename = str(unfinished / "model" / "arrays")
            error.args = tuple(str(each).replace("TEMPORARY", str(unfinished)) for each in error.args)
            raise error
        assert "unfinished" not in str(caught.value)
        assert "unfinished" not in str(caught.value.filename)
        assert str(tmp_path / name) in f"{caught.value} {caught.value.filename}"
