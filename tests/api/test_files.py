"""Files and folders are written whole or not at all."""

import errno

import pytest

from metricfit._files import check_new_folder, holds_files, new_file, new_folder

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


def test_an_empty_folder_that_is_there_keeps_its_identity(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    inode = (tmp_path / "b").stat().st_ino
    with new_folder(tmp_path / "link") as unfinished:
        (unfinished / "part").write_text("whole")
    assert (tmp_path / "b").stat().st_ino == inode
    assert names(tmp_path / "b") == ["part"]


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
    check_new_folder(tmp_path / "a" / "b")
    assert names(tmp_path) == []
    (tmp_path / "c").mkdir()
    check_new_folder(tmp_path / "c")
    assert names(tmp_path) == ["c"]
    with pytest.raises(OSError, match="File name too long"):
        check_new_folder(tmp_path / "d" / ("e" * 300))
    assert names(tmp_path) == ["c"]


def test_an_error_names_the_place_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as error, new_file(tmp_path / "never"):
        pass
    assert error.value.filename == str(tmp_path / "never")
