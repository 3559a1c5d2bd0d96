"""The pages of reproduced tables, from results made up here."""

import json
import re

import pytest

import metricfit_papers as papers
from metricfit_papers.pages import build, drawing, run_lengths, stored_results

VERSIONS = {"torch": "2.13", "metricfit": "0", "python": "3.11"}


def a_run(trials=10, smaller="", value=0.5, dataset="mammography", machine="2 CPU cores"):
    values = {"f1": [value] * trials, "accuracy": [0.9] * trials, "auroc": [0.8] * trials}
    measured = {"values": values, "seconds": 60.0, "epochs": [9] * trials, "machine": machine}
    measured["versions"] = VERSIONS
    return {
        "table": "btg-1",
        "protocol": "paper",
        "trials": trials,
        "smaller": smaller,
        "command": "metricfit reproduce btg-1 --data /some/where --out elsewhere",
        "datasets": {dataset: {"BCE": measured, "F1*": measured}},
    }


def write(folder, run, name="paper"):
    path = folder / run["table"]
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.json").write_text(json.dumps(run))


def test_larger_runs_replace_smaller_ones_and_not_the_other_way_round(tmp_path):
    small = a_run(2, "2 of 10 trials", value=0.1)
    write(tmp_path / "one", a_run(value=0.6))
    write(tmp_path / "one", small, "paper, 2 of 10 trials")
    write(tmp_path / "two", small, "paper, 2 of 10 trials")  # taken after the larger one
    write(tmp_path / "two", a_run(dataset="adult", machine="a GPU", value=0.7))
    (tmp_path / "one" / "cells").mkdir()
    for folder in ("one", "two"):
        assert stored_results.take(tmp_path / folder, tmp_path / "results") == ["btg-1"]
    kept = stored_results.read(tmp_path / "results" / "btg-1.json")["protocols"]["paper"]
    assert kept["mammography"]["BCE"]["values"]["f1"] == [0.6] * 10
    assert kept["adult"]["BCE"]["run"]["machine"] == "a GPU"
    write(tmp_path / "three", a_run(value=0.65))
    stored_results.take(tmp_path / "three", tmp_path / "results")
    kept = stored_results.read(tmp_path / "results" / "btg-1.json")["protocols"]["paper"]
    assert kept["mammography"]["BCE"]["values"]["f1"] == [0.65] * 10


def test_a_longer_run_of_fewer_trials_is_kept():
    kept = {"protocols": {}}
    for trials, smaller, value in (
        (5, "at most 15 of 5,000 epochs", 0.1),
        (1, "", 0.2),
        (5, "at most 15 of 5,000 epochs", 0.3),
    ):
        stored_results.merge(kept, a_run(trials, smaller, value=value))
    assert kept["protocols"]["paper"]["mammography"]["BCE"]["values"]["f1"] == [0.2]


def test_of_as_many_trials_the_longer_run_is_kept():
    kept = {"protocols": {}}
    for epochs, value in ((8, 0.1), (30, 0.2), (20, 0.3), (None, 0.4), (30, 0.5)):
        stored_results.merge(kept, a_run(10, f"at most {epochs} of 5,000 epochs" if epochs else "", value=value))
        expected = {0.3: 0.2, 0.5: 0.4}.get(value, value)
        assert kept["protocols"]["paper"]["mammography"]["BCE"]["values"]["f1"][0] == expected


def test_a_page_shows_published_and_measured_and_says_what_was_smaller_or_not_run(tmp_path):
    write(tmp_path / "out", a_run(2, "2 of 10 trials", value=0.123))
    stored_results.take(tmp_path / "out", tmp_path / "results")
    verdicts = tmp_path / "verdicts"
    verdicts.mkdir()
    (verdicts / "btg-1.md").write_text("What holds, by hand.")
    where = tmp_path / "pages"
    where.mkdir()
    written = build.build(tmp_path / "results", verdicts, where, tmp_path / "img", tmp_path / "sizes.json")
    assert {path.name for path in written} >= {"bridging-the-gap.md", "index.md"}
    page = (where / "bridging-the-gap.md").read_text().replace("&nbsp;", " ")
    assert "| row | F1 (published) | accuracy (published) | AUROC (published) | seconds |" in page
    assert "| BCE | 0.123 ± 0.000 (0.56 ± 0.11) | 0.900 ± 0.000 (0.99 ± 0.00) |" in page
    assert page.startswith("# Bridging the Gap")
    assert re.search(r"\[Table 1: .*\]\(#btg-1\): \[paper\]\(#btg-1-paper\)\n", page)
    assert '<a id="btg-1-paper"></a>' in page
    assert re.search(r"\]\(#btg-2\): not run yet", page)
    assert "Smaller than the table: 2 of 10 trials" in page
    assert "What holds, by hand." in page
    assert page.count("Not run yet.") == len([name for name in papers.table_names() if name.startswith("btg-")]) - 1
    picture = re.search(r"\]\(img/(.*?)\)", page).group(1)
    assert (tmp_path / "img" / picture).read_text().startswith("<?xml")
    summary = (where / "index.md").read_text()
    assert "[btg-1](bridging-the-gap.md#btg-1)" in summary
    assert "| 1 of 4 | 2 of 10 | 9 of 5,000 | 2 of 10 trials |" in summary
    assert "not run" in summary


def test_the_summary_says_which_part_was_smaller_and_keeps_the_order_of_protocols():
    kept = {"protocols": {}}
    words = "1 of 10 trials, at most 8 of 5,000 epochs, 3 of 9 images"
    stored_results.merge(kept, a_run() | {"protocol": "corrected"})
    stored_results.merge(kept, a_run(dataset="adult"))
    small = a_run(1, words)
    small["datasets"]["mammography"] = {"F1†": small["datasets"]["mammography"]["BCE"]}
    stored_results.merge(kept, small)
    stored_results.merge(kept, a_run(3, "3 of 10 trials", dataset="creditcard"))
    cells = list(build._run_line(papers.find_table("btg-1"), kept))
    assert cells[2:6] == ["paper, corrected", "3 of 4", "1 or 3 or 10 of 10", "8 or 9 of 5,000"]
    assert cells[6] == f"Mammography in some rows: {words}; Kaggle credit card: 3 of 10 trials"


def test_epochs_of_two_trainings_are_shown_as_a_sum():
    spec = papers.find_table("constrained-2")
    whole = {"run": {"smaller": ""}}
    assert run_lengths.count_epochs(spec, [{"epochs": [30]} | whole, {"epochs": [200]} | whole]) == "200 of 200"
    assert run_lengths.count_epochs(spec, [{"epochs": [30]} | whole, {"epochs": [266]} | whole]) == "266 of 200 + 200"


def test_limits_of_shorter_runs_are_shown_before_the_longest_training():
    spec = papers.find_table("btg-2")
    short = {"epochs": [30], "run": {"smaller": "at most 30 of 1,000 epochs"}}
    assert run_lengths.count_epochs(spec, [short, {"epochs": [103], "run": {"smaller": ""}}]) == "30 or 103 of 1,000"
    assert run_lengths.count_epochs(spec, [short]) == "30 of 1,000"


@pytest.mark.parametrize(
    ("table", "drawn"),
    [
        ("btg-1", ["f1"]),
        ("constrained-2", ["auc", "fpr95"]),
        ("constrained-6", ["all_auc", "all_fpr95"]),
        ("multiclass-1", ["precision", "recall"]),
        ("anyloss-perceptron", ["f1"]),
    ],
)
def test_the_columns_that_are_drawn(table, drawn):
    assert drawing._drawn(papers.find_table(table)) == drawn


def test_the_same_results_give_the_same_picture(tmp_path):
    kept = {"protocols": {}}
    stored_results.merge(kept, a_run())
    spec = papers.find_table("btg-1")
    for name in ("a.svg", "b.svg"):
        drawing.plot(spec, kept, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_table_of_many_sets_shows_means_and_differences(tmp_path):
    spec = papers.find_table("anyloss-perceptron")
    sets = ("ecoli", "breast_cancer", "phoneme")
    run = a_run() | {"table": spec.name, "datasets": {}}
    for at, name in enumerate(sets):
        levels = {"BCE": 0.5 + 0.01 * at**2, "AnyLoss": 0.6 + 0.01 * at, "BCE, tuned": 0.6, "AnyLoss for F1": 0.7}
        rows = {
            row: {"values": dict.fromkeys(spec.columns, [level] * 10), "seconds": 60.0, "epochs": [1]}
            | {"machine": "one", "versions": VERSIONS}
            for row, level in levels.items()
        }
        run["datasets"][name] = rows
    write(tmp_path / "out", run)
    stored_results.take(tmp_path / "out", tmp_path / "results")
    where = tmp_path / "pages"
    where.mkdir()
    build.build(tmp_path / "results", tmp_path / "verdicts", where, tmp_path / "img", tmp_path / "sizes.json")
    page = (where / "anyloss.md").read_text()
    assert "**Mean over 3 sets**" in page
    assert "| AnyLoss | +0.010 (2 : 0, p = 0.5) |" in page
    assert "| 0.610&nbsp;±&nbsp;0.000 (0.9807) |" in page  # breast cancer's own published accuracy
    assert "| phoneme | 0.540 | 0.620 | 0.600 |" in page
    assert "**ecoli**" not in page
    assert "6.0 minutes of training" in page  # of BCE and AnyLoss for F1 on three sets; what gathers costs nothing


def test_a_table_of_paths_has_a_picture_and_shows_what_searches_chose(tmp_path):
    spec = papers.find_table("surrogate-2")
    path = {"loss": [0.9, 0.5, 0.4], "metric": [0.1, 0.4, 0.6], "f1": [0.1, 0.4, 0.6], "accuracy": [0.8, 0.9, 0.9]}
    chosen = {"path": path, "watched": {"f1": [0.2, 0.3, 0.5]}}
    values = {column: [0.5] for column in spec.columns}
    measured = {"values": values, "seconds": 9.0, "epochs": [3], "machine": "a GPU", "versions": VERSIONS}
    run = a_run(1) | {"table": spec.name, "command": "metricfit reproduce surrogate-2"}
    run["datasets"] = {"tshirt": {row: measured | {"chosen": chosen} for row in ("surrogate F1", "MAE")}}
    write(tmp_path / "older", run)
    curves = {"test metric": [[0.1, 0.5], [0.3, 0.7], [0.2, 0.4]], "test accuracy": [[0.8, 0.9]] * 3}
    run["datasets"]["tshirt"]["MAE"]["chosen"] = chosen | {"tests": curves}
    write(tmp_path / "one", run)
    table = papers.find_table("constrained-6")
    older = [column for column in table.columns if not column.endswith("p_on")]
    values = {column: [] if column.endswith("p") else [0.5] for column in older}
    chosen = {"base": {}, "constraint": {"mu": 0.3, "rho": 2}, "validation AUC": 0.9}
    measured = {"values": values, "seconds": 9.0, "epochs": [3], "machine": "a GPU", "versions": VERSIONS}
    run = a_run(10) | {"table": table.name}
    run["datasets"] = {"airplane-automobile-9": {"ALM with BCE": measured | {"chosen": chosen}, "BCE": measured}}
    write(tmp_path / "one", run)
    table = papers.find_table("constrained-2")
    run = a_run(10) | {"table": table.name}
    run["datasets"] = {"airplane-automobile-9": {"ALM with BCE": measured, "BCE": measured}}
    write(tmp_path / "one", run)
    stored_results.take(tmp_path / "one", tmp_path / "results")
    build.build(tmp_path / "results", tmp_path, tmp_path, tmp_path / "img", tmp_path / "sizes.json")
    page = (tmp_path / "surrogate-f-beta.md").read_text(encoding="utf-8")
    assert "reproduction-surrogate-2-paper-paths.svg" in page
    assert "| MAE | 0.100 | 0.100 | 0.600 | 0.600 |" in page
    assert "reproduction-surrogate-2-paper-tests.svg" in page
    assert "| MAE | 3 trials | 0.500 (0.400 to 0.700) | 0.500 | 0.900 (0.900 to 0.900) | 0.900 |" in page
    older = tmp_path / "pages of older results"
    older.mkdir()
    stored_results.take(tmp_path / "older", older)
    build.build(older, older, older, older / "img", older / "sizes.json")
    assert "-tests.svg" not in (older / "surrogate-f-beta.md").read_text(encoding="utf-8")
    drawn = (tmp_path / "img" / "reproduction-surrogate-2-paper-paths.svg").read_text(encoding="utf-8")
    assert drawn.count("<use ") > 6
    page = (tmp_path / "constrained-training.md").read_text(encoding="utf-8")
    assert "| airplane v automobile, 1:9 | ALM with BCE | constraint: mu 0.3, rho 2; validation AUC 0.9 |" in page
    assert "| BCE | 0.500&nbsp;(0.9236) | - | 0.500&nbsp;(0.79) |" in page  # p after AUC
    assert "| BCE | 0.500&nbsp;(0.9396) | - | - | 0.500&nbsp;(0.413) |" in page  # two p, one of which is newer
    page = (tmp_path / "surrogate-f-beta.md").read_text(encoding="utf-8")
    assert "1 trial, 0.3 minutes" in page
