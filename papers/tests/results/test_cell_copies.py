"""Finished cells alone, cells of other folders, and a half-finished run that goes on elsewhere."""

import shutil

import pytest

import metricfit_papers as papers
from metricfit._files import write_file
from metricfit.runs import CellError
from metricfit_papers.results import table_run

SMALL = {"trials": 2, "epochs": 1, "only": ["synthetic_05"], "device": "cpu"}
ROWS = [f"{name}, B = 4096" for name in ("F1, linear", "Accuracy, linear", "BCE")]


def table(folder, rows=ROWS, **more):
    return papers.run_table(papers.find_table("btg-5"), "paper", folder, rows=rows, **SMALL, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, table(folder)


@pytest.fixture
def trained(monkeypatch):
    """The rows that are trained from now on."""
    rows, run_cell = [], table_run.run_cell

    def noted(*given):
        rows.append(given[-1].name[2])
        return run_cell(*given)

    monkeypatch.setattr(table_run, "run_cell", noted)
    return rows


def content(folder):
    """Each file of the cells and when it was written."""
    files = [path for path in (folder / "cells").rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def cell_of(folder, row):
    return next(path.parent for path in (folder / "cells").rglob("spec.json") if path.parent.parent.name == row)


def values(result):
    return {name: measured.values for name, measured in result.rows.items()}


def test_finished_cells_are_shown_and_nothing_is_trained(whole, trained):
    folder, first = whole
    assert table(folder, train=False).rows == first.rows
    assert trained == []


def test_missing_cells_are_counted_and_named_and_not_trained(tmp_path, trained):
    table(tmp_path, rows=ROWS[2:])
    before = content(tmp_path)
    trained.clear()
    with pytest.raises(papers.UnfinishedCellsError) as told:
        table(tmp_path, train=False)
    assert str(told.value).startswith(f"2 of 3 cells are not finished in {tmp_path}: synthetic_05 / paper / F1, linear")
    assert "leave out --finished (in Python, train=False)" in str(told.value)
    assert [cell.name[2] for cell in told.value.missing] == ROWS[:2]
    assert told.value.total == 3
    assert trained == []
    assert content(tmp_path) == before


def test_of_many_missing_cells_the_first_are_named(tmp_path):
    rows = [name for name in papers.find_table("btg-5").rows if name.endswith("B = 4096")]
    with pytest.raises(papers.UnfinishedCellsError, match=r"^5 of 5 cells .*; and 2 more\. To train") as told:
        table(tmp_path, rows=rows, train=False)
    assert str(told.value).count("synthetic_05 / paper") == 3


def test_cells_of_several_folders_make_one_table(whole, tmp_path, trained):
    _, first = whole
    table(tmp_path / "a", rows=ROWS[:2])
    table(tmp_path / "b", rows=ROWS[1:])
    trained.clear()
    assert papers.copy_finished(tmp_path / "a", tmp_path / "out").copied == 2
    before = content(tmp_path / "out")
    second = papers.copy_finished(tmp_path / "b", tmp_path / "out")
    assert (second.copied, second.here) == (1, 1)
    assert before.items() <= content(tmp_path / "out").items()  # nothing is replaced
    assert values(table(tmp_path / "out", train=False)) == values(first)
    assert trained == []


def test_unfinished_and_damaged_cells_are_not_copied(whole, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(whole[0], source)
    half, no_report, cut = (cell_of(source, row) for row in ROWS)
    (half / "finished").unlink()
    (no_report / "report.json").unlink()  # as a copy in the order of names leaves it, when interrupted
    (cut / "report.json").write_text((cut / "report.json").read_text()[:-9])
    found = papers.copy_finished(source, tmp_path / "out")
    assert (found.copied, found.here) == (0, 0)
    assert found.unfinished == [str(half)]
    assert sorted(found.damaged) == sorted(map(str, [no_report, cut]))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("last", ["spec.json", "report.json", "finished"])
def test_an_interrupted_copy_leaves_no_finished_cell_and_can_be_repeated(whole, tmp_path, monkeypatch, last):
    def interrupted(path, content):
        if path.name == last:
            raise KeyboardInterrupt
        return write_file(path, content)

    with monkeypatch.context() as now:
        now.setattr("metricfit_papers.results.cell_copies.write_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            papers.copy_finished(whole[0], tmp_path)
    with pytest.raises(papers.UnfinishedCellsError, match="3 of 3 cells"):
        table(tmp_path, train=False)
    assert papers.copy_finished(whole[0], tmp_path).copied == 3
    assert table(tmp_path, train=False).rows == whole[1].rows


@pytest.mark.parametrize("make", ["nothing", "empty", "other files"])
def test_a_folder_without_cells_is_refused(tmp_path, make):
    source = tmp_path / "source"
    if make != "nothing":
        (source / "cells").mkdir(parents=True)
    if make == "other files":
        (source / "cells" / "notes.txt").write_text("?")
    with pytest.raises(CellError, match=r"source holds no cells; give a folder that was the --out"):
        papers.copy_finished(source, tmp_path / "out")


def test_copying_a_folder_into_itself_changes_nothing(whole):
    before = content(whole[0])
    assert papers.copy_finished(whole[0], whole[0]).here == 3
    assert content(whole[0]) == before


def test_a_killed_run_continues_on_another_machine(whole, tmp_path, monkeypatch):
    """The folder is copied as a user would, cells that were begun and all."""
    run_cell = table_run.run_cell

    def killed(*given):
        if given[-1].name[2] == ROWS[1]:
            raise KeyboardInterrupt
        return run_cell(*given)

    with monkeypatch.context() as now:
        now.setattr(table_run, "run_cell", killed)
        with pytest.raises(KeyboardInterrupt):
            table(tmp_path / "there")
    died = cell_of(tmp_path / "there", ROWS[1])
    assert [path.name for path in died.iterdir()] == ["spec.json"]
    (died / ".report.json.unfinished").write_text('{"result"')  # a kill while it was written
    before = content(tmp_path / "there")

    rows = []
    monkeypatch.setattr(table_run, "run_cell", lambda *given: rows.append(given[-1].name[2]) or run_cell(*given))
    shutil.copytree(tmp_path / "there", tmp_path / "here")
    assert values(table(tmp_path / "here")) == values(whole[1])
    assert rows == ROWS[1:]

    rows.clear()
    assert papers.copy_finished(tmp_path / "there", tmp_path / "third").copied == 1
    assert values(table(tmp_path / "third")) == values(whole[1])
    assert rows == ROWS[1:]
    assert content(tmp_path / "there") == before
