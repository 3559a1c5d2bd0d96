"""The list of runs on the pages, and what is gathered of it from finished cells."""

import json

import pytest

import metricfit_papers as papers
from metricfit_papers import SpecError
from metricfit_papers.pages import gather, repository, stored_results
from metricfit_papers.results import result_files


def test_every_listed_run_is_one_that_the_command_takes(tmp_path, capsys):
    runs = gather.listed()
    written, missing = gather.gather(runs, tmp_path, tmp_path)
    assert written == []
    assert len(missing) >= len(runs)
    assert len(set(runs)) == len(runs)
    assert capsys.readouterr().out.count("missing  metricfit reproduce") == len(missing)


def test_every_run_of_the_queue_is_missing_and_says_what_it_is_for():
    """A run that was made moves from queue.toml to runs.toml."""
    queue = gather.listed(repository.QUEUE)
    assert len(set(queue)) == len(queue) > 10
    for run in queue:
        spec = papers.find_table(run.table)
        assert set(run.only) <= set(spec.datasets)
        assert set(run.rows) <= set(spec.rows)
        path = stored_results.RESULTS / f"{run.table}.json"
        assert run.not_in(stored_results.read(path) if path.exists() else {"protocols": {}}), run.command
        assert run.seconds > 0
        assert run.why


def test_every_number_of_the_pages_is_of_a_listed_run():
    """A run that the pages show and the list lacks could not be gathered again: add it to runs.toml."""
    runs = gather.listed()
    commands = {each.command for run in runs for each in (run, *run.parts())}
    shown = set()
    for path in stored_results.RESULTS.glob("*.json"):
        protocols = stored_results.read(path)["protocols"]
        shown |= {row["run"]["command"] for of in protocols.values() for rows in of.values() for row in rows.values()}
    assert shown
    assert shown - commands == set()


LIST = """
[[btg-5]]
only = ["synthetic_05", "synthetic_33"]
rows = ["BCE, B = 4096", "BCE, tuned for F1, B = 4096"]
trials = 2
epochs = 1

[[btg-5]]
only = ["synthetic_33"]
rows = ["F1, linear, B = 4096"]
trials = 1
epochs = 1
"""


@pytest.fixture
def out(tmp_path):
    """The first run's cells on one of its two datasets."""
    (tmp_path / "runs.toml").write_text(LIST, encoding="utf-8")
    train(tmp_path / "out", "synthetic_05")
    return tmp_path / "out"


def train(out, dataset):
    small = {"trials": 2, "epochs": 1, "device": "cpu", "rows": ["BCE, B = 4096"], "only": [dataset]}
    papers.run_table(papers.find_table("btg-5"), "paper", out, **small)


def gathered(out, *more):
    data = out.parent / "data"
    return gather.main(["--out", str(out), "--data", str(data), "--runs", str(out.parent / "runs.toml"), *more])


def test_complete_runs_are_written_as_by_the_command_and_others_reported(out, capsys):
    assert gathered(out) == 1
    said = capsys.readouterr().out
    small = "--row 'BCE, B = 4096' --row 'BCE, tuned for F1, B = 4096' --trials 2 --epochs 1"
    assert f"whole    metricfit reproduce btg-5 --data FOLDER --only synthetic_05 {small}" in said
    assert f"missing  metricfit reproduce btg-5 --data FOLDER --only synthetic_33 {small}" in said
    assert "1 of 1 cells, such as synthetic_33 / paper / BCE, B = 4096 / 2 trials" in said
    assert "1 results written" in said
    assert "2 runs lack cells" in said
    assert len(list(out.rglob("spec.json"))) == 1  # nothing was trained
    (path,) = (out / "btg-5").glob("*.json")
    spec = papers.find_table("btg-5")
    rows = ["BCE, B = 4096", "BCE, tuned for F1, B = 4096"]
    result = papers.run_table(spec, "paper", out, trials=2, epochs=1, only=["synthetic_05"], rows=rows)
    command = f"metricfit reproduce btg-5 --data FOLDER --only synthetic_05 {small}"
    assert json.loads(path.read_text(encoding="utf-8")) == result_files.to_plain_values(result, command)


def test_older_results_are_reported(out, capsys):
    gathered(out)
    train(out, "synthetic_33")
    capsys.readouterr()
    assert gathered(out) == 1
    said = capsys.readouterr().out
    assert "1 results written" in said
    assert said.count("older result, which pages.build uses unless you remove it") == 1
    assert "synthetic_05, rows" in said.splitlines()[-1]


def test_a_complete_list_exits_with_0(out, capsys):
    (out.parent / "runs.toml").write_text(LIST.split("\n\n")[0].replace(', "synthetic_33"', ""), encoding="utf-8")
    assert gathered(out, "btg-5") == 0
    with pytest.raises(SystemExit):
        gathered(out, "btg-1")
    assert "no run of btg-1 is listed; there are runs of btg-5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[btg-5]]\nrow = ['BCE']", r"btg-5, run 1\.row: is not known; did you mean 'rows'\?"),
        ("[[btg-99]]", "no table is called 'btg-99'"),
        ("btg-5 = [1]", r"is a list of runs, each of which starts with \[\[btg-5\]\]; got 1"),
        ("[btg-5]", "btg-5: should be a list"),
        ("[[btg-5]]\ntrials = 'two'", r"btg-5, run 1\.trials: should be a whole number"),
    ],
)
def test_mistakes_in_the_list_are_named(tmp_path, text, says):
    (tmp_path / "runs.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=says):
        gather.listed(tmp_path / "runs.toml")


def test_an_entry_is_a_run_for_each_of_its_protocols(tmp_path):
    (tmp_path / "runs.toml").write_text("[[btg-1]]\n[[btg-1]]\nprotocols = ['code', 'corrected']", encoding="utf-8")
    runs = gather.listed(tmp_path / "runs.toml")
    assert [run.protocol for run in runs] == ["paper", "code", "corrected"]
    assert [run.command.split("FOLDER")[1] for run in runs] == ["", " --protocol code", " --protocol corrected"]


def test_a_run_that_the_table_does_not_have_stops_everything(tmp_path):
    run = gather.Run("btg-5", "paper", rows=("BCE, B = 1",))
    with pytest.raises(ValueError, match="btg-5 has no row 'BCE, B = 1'"):
        gather.gather([run], tmp_path, tmp_path)
