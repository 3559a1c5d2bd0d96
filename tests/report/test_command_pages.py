"""The commands' pages say what the model and the comparison say."""

import copy
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from page_parts import carried, decoded, parts
from sklearn.metrics import confusion_matrix, f1_score

from metricfit import Counts, MetricClassifier, get_metric
from metricfit.cli.terminal import command_line
from metricfit.report import formatting, model_page
from metricfit.report.evaluation import DecidedRows
from metricfit.report.tables import DESCRIPTIONS
from metricfit.tabular import Comparison, ComparisonRow
from metricfit.tabular.compare.judging import MethodDecisions
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE
from metricfit.tabular.compare.verdict import interval_of_mean
from metricfit.tabular.ensemble import ModelRow

TINY = {"models": ["linear", "extra_trees"], "members": 2, "time_budget": None, "random_state": 0}


def shown(path):
    return " ".join(" ".join(parts(path.read_text(encoding="utf-8")).text).split())


def matrix(path, classes):
    """The confusion matrix of several classes, as the page shows it."""
    body = re.search(r'class="confusion many">.*?</table>', path.read_text(encoding="utf-8"), re.DOTALL)[0]
    return np.array(re.findall(r'<data value="([\d.]+)"', body), dtype=float).reshape(classes, classes)


@pytest.fixture(scope="module")
def rows():
    r = np.random.default_rng(0)
    X = pd.DataFrame(r.normal(size=(160, 2)), columns=["a", "b"])
    return X, pd.Series(np.where(X["a"] + 0.5 * r.normal(size=160) > 0.9, "fraud", "none"), name="kind")


@pytest.fixture(scope="module")
def several(rows):
    X, _ = rows
    y = pd.Series(np.select([X["a"] > 0.6, X["b"] > 0.6], ["<b>", 'say "c"'], "a"), name="kind")
    return X, y, MetricClassifier("f1", **TINY | {"models": ["linear"]}).fit(X, y.to_numpy())


@pytest.fixture(scope="module")
def for_f1(rows):
    return model_for(rows)


def model_for(rows, metric="f1", **settings):
    return MetricClassifier(metric, pos_label="fraud", **TINY, **settings).fit(rows[0], rows[1].to_numpy())


def test_evaluation_tells_the_threshold_that_was_given(rows, tmp_path):
    model = model_for(rows, subject_to=["recall >= 0.5"])
    for threshold in (None, 0.9):
        at = model.threshold_ if threshold is None else threshold
        path = model_page.write_evaluation_page(
            model, *rows, tmp_path / "page.html", threshold=threshold, data="new.csv"
        )
        scores = model.predict_proba(rows[0])[:, 0]  # classes_ are sorted: fraud first
        value = f1_score(rows[1] == "fraud", scores >= at)
        text = shown(path)
        assert f"F1 is {value:.3f}" in text
        assert f"at threshold {formatting.threshold(at)}, on 160 rows." in text
        assert (f"the model's own is {formatting.threshold(model.threshold_)}." in text) == (threshold is not None)
        recall = get_metric("recall")(DecidedRows.of(model, *rows, threshold).counts).item()
        assert (
            f"The requirement recall >= 0.5 {'holds' if recall >= 0.5 else 'does not hold'} here ({recall:.3f})."
            in text
        )
        explorer = decoded(carried(path.read_text(encoding="utf-8"))[0])
        assert explorer.thresholds[explorer.chosen] == at


def test_where_lower_is_better_the_page_shows_the_value_itself(rows, tmp_path):
    model = model_for(rows, "cost(fp=1, fn=5)")
    path = model_page.write_evaluation_page(model, *rows, tmp_path / "page.html", data="new.csv")
    value = get_metric("cost(fp=1, fn=5)")(DecidedRows.of(model, *rows).counts).item()
    assert value > 0
    assert f"cost(fp=1, fn=5) is {value:.3f}" in shown(path)


@pytest.mark.parametrize("metric", ["f1", "cost(fp=1, fn=5)"])
def test_the_value_is_an_estimate_for_new_rows_and_the_page_says_so(rows, tmp_path, metric):
    model = model_for(rows, metric)
    text = shown(model.report(tmp_path / "page.html", data="old.csv", target="kind"))
    low, high = model.value_interval_
    name = "F1" if metric == "f1" else metric
    assert f"{name} is {model.value_:.3f} (95 % interval {low:.3f} to {high:.3f}) at threshold" in text
    assert "The value is estimated for new rows: the value on held-out rows." in text
    assert f"Estimate of {metric} {model.value_:.3f}: the value on held-out rows" in text
    assert "chose the decision" not in text


def test_a_value_that_was_lowered_is_explained(rows, tmp_path):
    model = MetricClassifier("f1", models=["linear"], decision="empirical", random_state=0).fit(*rows)
    before = model.decision_.evidence.value
    assert model.value_ < before
    basis = f"{before:.3f} on held-out rows, minus {before - model.value_:.3f} because their labels chose the decision"
    text = shown(model.report(tmp_path / "page.html"))
    assert f"The value is estimated for new rows: {basis}." in text
    assert "The labels of these rows chose the decision" in text


def test_values_under_requirements_are_explained(for_f1, tmp_path):
    model = copy.deepcopy(for_f1).rethreshold(subject_to="recall >= 0.5")
    text = shown(model.report(tmp_path / "page.html"))
    assert "The decision was chosen on the held-out rows where the value was measured" in text
    assert f"Estimate of f1 {model.value_:.3f}: the value on held-out rows, on which the decision was chosen" in text


def test_a_page_for_another_class_balance_shows_the_decisions_at_that_balance(for_f1, tmp_path):
    model = copy.deepcopy(for_f1).rethreshold(prevalence=0.6)
    text = shown(model.report(tmp_path / "page.html"))
    assert f"f1 {model.decision_.evidence.value:.3f} at threshold" in text


def test_the_models_of_a_page_are_those_of_the_ensemble(rows, for_f1, tmp_path):
    model = copy.copy(for_f1)
    model.models_ = [*model.models_, ModelRow("kernel", left_out="would take about 31 s more, and 12 s are left")]
    text = shown(model.report(tmp_path / "page.html"))
    for row in model.models_[:-1]:
        weight = f"{100 * row.weight:.1f} %" if row.weight else "not used"
        described = f"{row.name} {DESCRIPTIONS[row.name]} {weight} {row.value:.3f} {row.log_loss:.3f}"
        assert described in text
    assert "kernel : would take about 31 s more, and 12 s are left." in text
    assert "can take part with a larger time budget" in text
    assert "left out" not in shown(for_f1.report(tmp_path / "page.html"))


def test_learning_curves_are_there_with_a_network_only(rows, for_f1, tmp_path):
    model = copy.copy(for_f1)
    assert "Learning curves" not in shown(model.report(tmp_path / "page.html"))
    epochs = [{"member": member, "train_loss": 0.5, "validation_loss": 0.6} for member in (0, 0, 1, 1)]
    model.history_ = epochs
    text = shown(model.report(tmp_path / "page.html"))
    assert "Learning curves The losses of the networks: one line per fold." in text
    assert "of 2 members, one line each" in text


def test_compare_is_recommended_for_two_and_for_several_classes(for_f1, several, tmp_path):
    for model in (for_f1, several[2]):
        assert "metricfit compare shows" in shown(model.report(tmp_path / "page.html", data="old.csv", target="kind"))


def test_few_rows_are_not_called_a_reason_to_trust(rows, for_f1, tmp_path):
    X, y = rows
    model = for_f1
    few = np.r_[np.flatnonzero(y == "fraud")[:8], np.flatnonzero(y == "none")[:30]]
    text = shown(
        model_page.write_evaluation_page(model, X.iloc[few], y.iloc[few], tmp_path / "page.html", data="new.csv")
    )
    assert "no reason to doubt" not in text
    assert re.search(
        r"here \(95 % interval [\d.]+ to [\d.]+\), [\d.]+ at training time .*: as expected, as far as 8 rows", text
    )


def test_a_report_from_python_judges_the_model_on_the_rows_that_are_given(rows, for_f1, tmp_path):
    model = for_f1
    text = shown(model.report(tmp_path / "page.html", *rows))
    assert f"F1 is {f1_score(rows[1], model.predict(rows[0]), pos_label='fraud'):.3f}" in text
    assert "A classifier judged by F1" in shown(model.report(tmp_path / "fit.html"))
    with pytest.raises(ValueError, match="report needs both X and y, or neither"):
        model.report(tmp_path / "none.html", rows[0])
    with pytest.raises(ValueError, match="threshold= is for models of two classes, together with X and y"):
        model.report(tmp_path / "none.html", threshold=0.5)
    assert not (tmp_path / "none.html").exists()


def test_rows_of_one_class_have_no_interval(rows, for_f1, tmp_path):
    X, y = rows
    none = (y == "none").to_numpy()
    path = model_page.write_evaluation_page(for_f1, X[none], y[none], tmp_path / "page.html", data="new.csv")
    assert "F1 is 0.000 at threshold" in shown(path)


def test_evaluation_of_several_classes(several, tmp_path):
    X, y, model = several
    path = model_page.write_evaluation_page(model, X, y, tmp_path / "page.html", data="new.csv")
    truth, called = y.to_numpy(), model.predict(X)
    value = f1_score(truth, called, average="macro")
    told = re.search(rf"macro F1 is {value:.3f} \(95 % interval ([\d.]+) to ([\d.]+)\), on 160 rows\.", shown(path))
    # The naive twin: rows of each class drawn again.
    rng, values = np.random.default_rng(1), []
    for _ in range(300):
        drawn = np.concatenate([rng.choice(at := np.flatnonzero(truth == each), len(at)) for each in model.classes_])
        values.append(f1_score(truth[drawn], called[drawn], average="macro"))
    assert (float(told[1]), float(told[2])) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.02)
    np.testing.assert_array_equal(matrix(path, 3), confusion_matrix(truth, called, labels=model.classes_))


def test_the_page_of_a_fit_with_several_classes_shows_out_of_fold_decisions(several, tmp_path):
    model = several[2]
    path = model.report(tmp_path / "page.html", data="old.csv", target="kind")
    held_out = model.held_out_
    called = (held_out.logits + model.offsets_).argmax(1)
    np.testing.assert_array_equal(matrix(path, 3), confusion_matrix(held_out.y, called))
    assert f"macro f1 {model.decision_.evidence.value:.3f} on 160 samples of 3 classes." in shown(path)
    low, high = model.value_interval_
    assert f"macro F1 is {model.value_:.3f} (95 % interval {low:.3f} to {high:.3f}), estimated for new rows." in shown(
        path
    )


def test_the_page_of_a_fit_tells_its_intervals(rows, for_f1, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/metricfit", "fit", "a b.csv", "--subject-to", "recall >= 0.5"])
    model = for_f1
    text = shown(model_page.write_model_page(model, tmp_path / "page.html", command=command_line()))
    low, high = model.value_interval_
    assert f"F1 is {model.value_:.3f} (95 % interval {low:.3f} to {high:.3f}) at threshold" in text
    low, high = model.threshold_interval_
    assert (
        f"Threshold {formatting.threshold(model.threshold_)}, with a 95 % bootstrap interval of {low:.3f} to {high:.3f}"
        in text
    )
    assert "Command metricfit fit 'a b.csv' --subject-to 'recall >= 0.5' Versions metricfit" in text


def test_the_page_of_a_comparison_says_how_it_was_made(tmp_path):
    ours, theirs = (0.7, 0.74, 0.69, 0.72), (0.6, 0.66, 0.61, 0.66)
    f1 = get_metric("f1")
    rows = [
        ComparisonRow(DEFAULT, np.mean(ours), interval_of_mean(ours, f1), 0.08, seconds=12.5, held=3, values=ours),
        ComparisonRow(REFERENCE, np.mean(theirs), interval_of_mean(theirs, f1), seconds=3.25, held=4, values=theirs),
    ]
    scores, labels = np.linspace(0, 1, 40), np.repeat([0, 1], [30, 10])
    path = Comparison(
        "f1",
        rows,
        "Use <it>.",
        labels,
        DEFAULT,
        details=("A reason with a <tag>.",),
        decisions={DEFAULT: MethodDecisions(scores, (scores >= 0.5).astype(int), [0.5])},
        notes=("support vectors is left out: too many rows",),
        subject_to=("recall >= 0.2",),
        name="t.csv",
        target="y",
        group="site",
        classes=("no", "<yes>"),
    ).report(tmp_path / "p.html")
    text = shown(path)
    low, high = interval_of_mean(ours, f1)
    assert f"{DEFAULT} (recommended) {np.mean(ours):.3f} {low:.3f} to {high:.3f} +0.080" in text
    assert text.index(f"{REFERENCE} (reference) {np.mean(theirs):.3f}") < text.index(f"{DEFAULT} (recommended)")
    assert "3 of 4 folds 12.5 s" in text
    assert "Why this one A reason with a <tag>." in text
    assert "Left out support vectors is left out: too many rows" in text
    assert "40: 10 “<yes>” (25.0 %)" in text
    assert "copies of a row stay together, and so do rows of one “site”" in text
    counts = Counts.from_labels(torch.from_numpy((scores >= 0.5).astype(int)), torch.from_numpy(labels))
    assert f"f1 {f1(counts).item():.3f} at threshold 0.5" in text
