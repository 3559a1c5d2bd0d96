"""A stranger's table, and what is said of files that are not as they should be."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import metricfit_papers as papers
from metricfit.cli.app import app
from metricfit_papers import SpecError
from metricfit_papers.specs import table_parser
from metricfit_papers.specs.expressions import ExpressionError, build_object

PAGE = Path(__file__).parents[3] / "papers" / "pages" / "add-a-table.md"
EXAMPLE = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)


@pytest.fixture
def mine(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"pages": rng.poisson(5, 200), "town": rng.choice(["Ulm", "Bonn"], 200)})
    frame["bought"] = np.where(frame["pages"] + 3 * rng.normal(size=200) > 7, "yes", "no")
    frame.to_csv(tmp_path / "visits.csv", index=False)
    (tmp_path / "visits.toml").write_text(EXAMPLE, encoding="utf-8")
    return tmp_path / "visits.toml"


def reproduced(*args):
    return CliRunner().invoke(app, ["reproduce", *map(str, args)])


def test_the_file_on_the_page_about_adding_tables_runs(mine, tmp_path):
    small = ("--trials", 2, "--epochs", 3, "--out", tmp_path / "out", "--quiet")
    done = reproduced(mine, *small)
    assert done.exit_code == 0, done.output
    assert "0.61 ± 0.02" in done.output
    written = next((tmp_path / "out" / "visits").glob("*.md")).read_text(encoding="utf-8")
    assert re.search(r"^\| soft F1 \| 0\.\d+ ± 0\.\d+ \(0\.61 ± 0\.02\) \|", written, re.MULTILINE)
    assert "2 of 10 trials, at most 3 of 500 epochs" in written
    frame = pd.read_csv(mine.parent / "visits.csv")
    frame.iloc[:150].to_csv(mine.parent / "visits.csv", index=False)
    again = reproduced(mine, *small, "--json")
    assert again.exit_code == 0, again.output
    cells = list((tmp_path / "out" / "cells").rglob("finished"))
    assert len(cells) == 4  # two rows before the file changed, two after


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("trials = 10", "trails = 10"), "trials: is missing; it should be a whole number"),
        (("trials = 10", "trials = 0"), "trials: should be at least 1, got 0"),
        (("trials = 10", "trials = 10\ntrials_ = 1"), "trials_: is not known; did you mean 'trials'?"),
        (
            ('prepare = "one-hot"', 'prepare = "magic"'),
            "prepare: should be one of bridging the gap, bridging the gap, not scaled, one-hot",
        ),
        (("patience = 50", "patience = true"), "training.patience: should be a whole number, got True"),
        (("lr = 0.001", 'lr = "fast"'), "training.lr: should be a number, got 'fast'"),
        (("lr = 0.001", "rate = 0.001"), "visits.toml: training.rate: is not known"),
        (("patience = 50", "patiense = 50"), "visits.toml: training.patiense: is not known; did you mean 'patience'"),
        (("mlp(hidden", "mpl(hidden"), "network: 'mpl' is not known here; did you mean mlp?"),
        (("'f1', step=Linear", "'f1', step=Liner"), "rows.soft F1.loss.paper: 'Liner' is not known here"),
        (("MetricLoss('f1', step=Linear(0.1))", "__import__('os')"), "'__import__' is not known here"),
        (("MetricLoss('f1', step=Linear(0.1))", "1 + 1"), "is not a call such as MetricLoss('f1')"),
        (("Linear(0.1)", "Linear(7)"), "Linear needs a delta of at least 1e-06 and below 0.5, got 7"),
        (('metric = "f1"', 'metric = "f11"'), "columns.f1.metric: "),
        (('decided = "tuned f1"', 'decided = "tuned"'), "rows.BCE, tuned.decided: should be 'mean', 'half' or"),
        (('of = "BCE"', 'of = "BEC"'), "rows.BCE, tuned.of: should be a row that is trained, got 'BEC'"),
        (("BCE = { f1", "BEC = { f1"), "published.visits.BEC: is none of the rows soft F1, BCE"),
        (("f1 = [0.55, 0.03]", "f1 = 0.55"), "published.visits.BCE.f1: should be a list, got 0.55"),
        (("f1 = [0.55, 0.03]", "f1 = [1, 2, 3]"), "should be [mean, standard deviation] or [mean]"),
        (("f1 = [0.55, 0.03]", "f9 = [0.55]"), "f9: is none of the columns f1, auroc"),
        (('varied = "splits"', 'varied = "spilts"'), "protocols.paper.varied: should be one of weights, splits, folds"),
        (('file = "visits.csv"', ""), "no dataset is called 'visits': give its file, target and positive, or one of"),
        (('positive = "yes"', ""), "file: needs target, the column of labels, and positive"),
        (("says =", "fractions = [0.5, 0.6, 0.2]\nsays ="), "fractions: are of training, validation and test rows"),
        (('loss = "WeightedBCELoss"', 'loss.code = "WeightedBCELoss"'), "there is no protocol 'code'; there are paper"),
        (('loss = "WeightedBCELoss"', ""), "rows.BCE.loss: is missing for paper"),
        (("title =", "like = 'nothing'\ntitle ="), "like: there is no table 'nothing'"),
        (("title =", "title"), "cannot be read as TOML"),
    ],
)
def test_a_bad_file_is_reported_with_its_key_and_the_remedy(mine, change, says):
    assert change[0] in EXAMPLE
    mine.write_text(EXAMPLE.replace(*change, 1), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        papers.find_table(str(mine))
    assert says in str(caught.value)
    assert "visits.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nothing",), "no table is called 'nothing'; there are "),
        (("no/such.toml",), "there is no file no/such.toml"),
        ((), "Name a table, such as btg-1"),
        (("btg-1",), "CocktailParty is read from a folder: give --data FOLDER"),
        (("btg-1", "--only", "iris"), "btg-1 has no dataset 'iris'; it has adult"),
        (("btg-1", "--row", "SVM"), "btg-1 has no row 'SVM'"),
        (("btg-1", "--without", "x"), "btg-1 has no row or tag 'x'"),
        (("btg-1", "--protocol", "mine"), "btg-1 has no protocol 'mine'; it has paper, code, corrected"),
        (("btg-1", "--only", "creditcard", "--data", "."), "creditcard is not in ."),
    ],
)
def test_the_command_reports_mistakes_without_a_traceback(args, says, tmp_path):
    done = reproduced(*args, "--out", tmp_path, "--quiet")
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_the_list_names_every_table():
    done = reproduced("--list", "--json")
    assert done.exit_code == 0
    assert all(f'"name": "{name}"' in done.output for name in papers.table_names())


def test_variants_are_rows_with_other_training(mine):
    mine.write_text(EXAMPLE + '\n[variants."B = 64"]\nbatch_size = 64\n', encoding="utf-8")
    with pytest.raises(SpecError, match="published"):  # whose rows have other names now
        papers.find_table(str(mine))
    head = EXAMPLE[: EXAMPLE.index("[published")]
    mine.write_text(head + '\n[variants."B = 64"]\nbatch_size = 64\n[variants.all]\nbatch_size = 0\n', encoding="utf-8")
    spec = papers.find_table(str(mine))
    assert [row.name for row in spec.shown("paper")][-2:] == ["BCE, tuned, B = 64", "BCE, tuned, all"]
    assert spec.rows["BCE, B = 64"].training["paper"].batch_size == 64
    assert spec.rows["BCE, all"].training["paper"].batch_size == 0
    assert spec.rows["BCE, tuned, all"].of == "BCE, all"


def test_an_expression_is_of_literals_and_known_names():
    assert build_object("dict(a=-1, b=(1, 2))", {"dict": dict}) == {"a": -1, "b": [1, 2]}
    with pytest.raises(ExpressionError, match="arguments are numbers, text, lists"):
        build_object("dict(a=1 + 1)", {"dict": dict})
    with pytest.raises(ExpressionError, match="write out the arguments"):
        build_object("dict(**{'a': 1})", {"dict": dict})


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(mine, tmp_path):
    spec = papers.find_table(str(mine))
    small = {"trials": 2, "epochs": 3, "device": "cpu"}
    one = papers.run_table(spec, "paper", tmp_path / "one", **small)
    two = papers.run_table(spec, "paper", tmp_path / "two", jobs=2, **small)
    assert {key: row.values for key, row in one.rows.items()} == {key: row.values for key, row in two.rows.items()}


def test_like_can_be_chained(tmp_path):
    text = 'like = "surrogate-5"\ntitle = "mine"\nwhere = "here"\n[columns]\nf1 = { title = "F1", metric = "f1" }\n'
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    spec, last = papers.find_table(str(tmp_path / "mine.toml")), papers.find_table("surrogate-2")
    assert list(spec.rows) == list(last.rows)
    assert spec.protocols == last.protocols
    assert spec.rows["MAE"].training["paper"].network == "resnet34"


def test_a_circular_like_is_refused(tmp_path):
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{one}.toml").write_text(f'like = "{other}"\ntitle = "{one}"\n', encoding="utf-8")
    with pytest.raises(SpecError, match=r"b.toml: like: is circular, through a.toml"):
        papers.find_table(str(tmp_path / "a.toml"))


def test_published_choices_are_of_known_datasets_and_rows(tmp_path):
    spec = papers.find_table("constrained-2")
    assert spec.searched["airplane-automobile-2", "ALM with BCE"] == "mu 0.2, rho 4, margin 2.0"
    assert len(spec.searched) == 24  # eight losses at three ratios
    assert papers.find_table("constrained-5").searched == {}
    text = (table_parser.FOLDER / "constrained-2.toml").read_text(encoding="utf-8")
    for old, new, message in (
        ("[searched.airplane-automobile-2]", "[searched.nowhere]", "is none of the datasets"),
        ('"ALM with MSFE" = "mu 0.3, rho 3, margin 1.0"', 'nobody = "mu 1"', "is none of the rows"),
    ):
        (tmp_path / "mine.toml").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(papers.SpecError, match=message):
            papers.find_table(str(tmp_path / "mine.toml"))
