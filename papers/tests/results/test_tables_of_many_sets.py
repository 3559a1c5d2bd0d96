"""Tables of many sets: rows that gather others' columns, means over sets, rows against one of them."""

import statistics

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wilcoxon

import metricfit_papers as papers
from metricfit_papers import SpecError
from metricfit_papers.pages import set_averages
from metricfit_papers.results import markdown, result_files

HEAD = """
title = "Many sets"
paper = "Nobody (2026)"
where = "nowhere"
trials = 2
prepare = "bridging the gap"
against = "BCE, tuned"
protocols.paper = { says = "Two splits.", varied = "splits", decided = "half" }
columns.f1 = { title = "F1", metric = "f1" }
columns.recall = { title = "recall", metric = "recall" }
training = { network = "perceptron", optimizer = "SGD", lr = 0.5, batch_size = 0, epochs = 9 }
[rows.ours]
gathers = { f1 = "for F1", recall = "for recall" }
[rows.BCE]
kind = "descent"
loss = "WeightedBCELoss"
[rows."BCE, tuned"]
gathers = { f1 = "BCE, tuned for F1", recall = "BCE" }
[rows."for F1"]
kind = "descent"
tags = ["each"]
loss = "MetricLoss('f1')"
[rows."for recall"]
kind = "descent"
tags = ["each"]
loss = "MetricLoss('recall')"
[rows."BCE, tuned for F1"]
of = "BCE"
decided = "tuned f1"
tags = ["each"]
[published.all]
ours = { f1 = [0.6729] }
[datasets]
"""
SETS = ("a", "b", "c")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    where = tmp_path_factory.mktemp("mine")
    rng = np.random.default_rng(1)
    text = HEAD
    for name in SETS:
        x = rng.normal(size=(80, 3))
        label = (x[:, 0] + rng.normal(size=80) > 0.8).astype(int)
        pd.DataFrame(x, columns=list("uvw")).assign(label=label).to_csv(where / f"{name}.csv", index=False)
        text += f'{name} = {{ title = "set {name}", file = "{name}.csv", target = "label", positive = "1" }}\n'
    (where / "many.toml").write_text(text)
    return where / "many.toml"


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    result = papers.run_table(papers.find_table(str(file)), "paper", tmp_path_factory.mktemp("out"), device="cpu")
    return result, result_files.to_plain_values(result, "a command")


def test_a_row_gathers_the_columns_of_others(run):
    rows = run[0].rows
    for name in SETS:
        found = {row: rows[name, row] for row in ("ours", "for F1", "for recall")}
        assert found["ours"].values["f1"] == found["for F1"].values["f1"]
        assert found["ours"].values["recall"] == found["for recall"].values["recall"]
        assert found["ours"].seconds == found["for F1"].seconds + found["for recall"].seconds
        assert rows[name, "BCE, tuned"].seconds == rows[name, "BCE"].seconds  # trained once, decided twice


def test_a_gathering_row_alone_runs_what_it_needs_and_shows_itself(file, tmp_path, run):
    spec = papers.find_table(str(file))
    alone = papers.run_table(spec, "paper", tmp_path, rows=["ours"], only=["a"], device="cpu")
    assert list(alone.rows) == [("a", "ours")]
    assert alone.rows["a", "ours"].values == run[0].rows["a", "ours"].values
    assert len(list((tmp_path / "cells").rglob("finished"))) == 2


def test_means_over_the_sets_come_first_with_the_published_ones(run):
    spec, plain = run[0].spec, run[1]
    page = markdown.format_results(spec, plain)
    means = [statistics.fmean(run[0].rows[name, "ours"].values["f1"]) for name in SETS]
    assert plain["average"]["ours"]["values"]["f1"] == pytest.approx(means, abs=1e-6)
    assert page.index("**Mean over 3 sets**") < page.index("**set a**")
    assert f"| ours | {statistics.fmean(means):.3f} ± {statistics.stdev(means):.3f} (0.6729) |" in page


def test_rows_against_one_of_them(run):
    spec, plain = run[0].spec, run[1]
    text = set_averages.against(spec, plain)
    one, other = (
        np.array([np.mean(run[0].rows[name, row].values["f1"]) for name in SETS]) for row in ("ours", "BCE, tuned")
    )
    p = wilcoxon(one - other).pvalue
    wins, losses = int((one > other).sum()), int((one < other).sum())
    assert f"| ours | {(one - other).mean():+.3f} ({wins} : {losses}, p = {p:.2g}) |" in text
    assert "for F1 |" not in text
    assert text.startswith("**Against BCE, tuned**: mean difference over 3 sets")


def test_each_column_set_by_set(run):
    text = set_averages.by_set(run[0].spec, run[1], "recall")
    of = {row: run[0].rows["b", row].values["recall"] for row in ("ours", "BCE", "BCE, tuned")}
    assert text.splitlines()[0] == "| recall | ours | BCE | BCE, tuned |"
    assert text.splitlines()[3] == "| set b | " + " | ".join(f"{np.mean(each):.3f}" for each in of.values()) + " |"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('against = "BCE, tuned"', 'against = "BSE"'), "against: is none of the rows ours, BCE"),
        (
            (', recall = "for recall" }', " }"),
            "rows.ours.gathers: should name a row for each of the columns f1, recall",
        ),
        (('recall = "for recall"', 'recall = "BCE, tuned"'), "rows.ours.gathers.recall: should be another row with"),
        (("[published.all]", "[published.every]"), "published.every: is neither 'all' nor one of the datasets a, b"),
    ],
)
def test_mistakes_in_gathering_rows_are_reported(file, tmp_path, change, says):
    text = file.read_text()
    assert change[0] in text
    (tmp_path / "bad.toml").write_text(text.replace(*change, 1))
    with pytest.raises(SpecError) as told:
        papers.find_table(str(tmp_path / "bad.toml"))
    assert says in str(told.value)
