"""The order of classes that are words: declared by the labels' type or --order, and needed by some metrics."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score
from typer.testing import CliRunner

from metricfit import MetricClassifier, TunedDecisionClassifier, compare
from metricfit.cli.app import app

ORDER = ["low", "medium", "high"]
KAPPA = "weighted_kappa(power=2)"
BOTH_REMEDIES = r"ordered=True\).*--order low,medium,high"


@pytest.fixture(scope="module")
def grades():
    """Three classes whose alphabetical order is not their order."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    number = np.digitize(X["a"] + 0.5 * X["b"] + 0.7 * rng.normal(size=300), [-0.3, 1.0])
    return X, np.array(ORDER, dtype=object)[number]


def true_kappa(y, called):
    numbers = [[ORDER.index(label) for label in labels] for labels in (y, called)]
    return cohen_kappa_score(*numbers, weights="quadratic")


LABELS = {
    "pandas": lambda words: pd.Series(pd.Categorical(words, categories=["none", *ORDER], ordered=True)),
    "categorical": lambda words: pd.Categorical(words, categories=ORDER, ordered=True),
    "polars": lambda words: pl.Series(words.tolist(), dtype=pl.Enum(ORDER)),
    "arrow": lambda words: pl.Series(words.tolist(), dtype=pl.Enum(ORDER)).to_arrow(),
}


def estimators():
    return {
        "ensemble": MetricClassifier(KAPPA, models=["linear"], members=3, random_state=0),
        "tuned": TunedDecisionClassifier(LogisticRegression(), KAPPA, cv=3, random_state=0),
    }


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", estimators())
def test_estimators_follow_the_declared_order(grades, name, kind):
    X, words = grades
    model = estimators()[name].fit(X, LABELS[kind](words))
    called = model.predict(X)
    assert model.score(X, words) == pytest.approx(true_kappa(words, called))
    held_out = model.held_out_
    decided = np.array(ORDER)[model.decision_.decide(held_out.logits)]
    assert model.decision_.evidence.value == pytest.approx(true_kappa(np.array(ORDER)[held_out.y], decided))
    assert model.classes_.tolist() == sorted(ORDER)
    assert (model.classes_[model.predict_proba(X).argmax(1)] == called).mean() > 0.7
    np.testing.assert_array_equal(model.classes_[model.decision_function(X).argmax(1)], called)


@pytest.mark.parametrize("name", estimators())
def test_a_saved_model_keeps_the_order(grades, name, tmp_path):
    X, words = grades
    model = estimators()[name].fit(X, LABELS["pandas"](words))
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert loaded.score(X, words) == pytest.approx(model.score(X, words))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", estimators())
@pytest.mark.parametrize("metric", [KAPPA, "cost_matrix([[0, 1, 4], [1, 0, 1], [9, 5, 0]])"])
def test_words_without_an_order_are_refused_with_both_remedies(grades, name, metric):
    X, words = grades
    with pytest.raises(ValueError, match=BOTH_REMEDIES):
        estimators()[name].set_params(metric=metric).fit(X, words)
    with pytest.raises(ValueError, match=BOTH_REMEDIES):
        compare(X.assign(y=words), "y", metric, methods=["logistic regression"], folds=2)
    with pytest.raises(ValueError, match=BOTH_REMEDIES):
        estimators()[name].set_params(metric="accuracy", subject_to=f"{KAPPA} >= 0.1").fit(X, words)
    estimators()[name].set_params(metric="accuracy").fit(X, words)  # no order is needed


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_compare_follows_the_declared_order(grades, kind):
    X, words = grades
    labels = LABELS[kind](words)
    table = X.assign(y=labels) if kind == "pandas" else pl.DataFrame(X).with_columns(y=labels)
    result = compare(table, "y", KAPPA, methods=["logistic regression"], folds=2)
    assert result.classes == tuple(ORDER)
    (row,) = [row for row in result.rows if row.name == "logistic regression"]
    decided = np.array(ORDER)[result.decisions[row.name].decided]
    assert row.mean == pytest.approx(true_kappa(words, decided), abs=0.05)
    by_values = compare(X, labels, KAPPA, methods=["logistic regression"], folds=2)
    assert by_values.rows[0].mean == result.rows[0].mean


@pytest.mark.parametrize("source", ["option", "file"])
def test_the_commands_follow_the_order(grades, tmp_path, source):
    X, words = grades
    if source == "file":
        path = tmp_path / "rows.parquet"
        X.assign(y=LABELS["categorical"](words)).to_parquet(path)
    else:
        path = tmp_path / "rows.csv"
        X.assign(y=words).to_csv(path, index=False)
    order = ["--order", "low,medium,high"] if source == "option" else []
    small = ["--target", "y", "--metric", KAPPA, "--quiet", "--json"]

    def call(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    if order:
        refused = call("fit", path, *small, "--out", tmp_path / "out")
        assert refused.exit_code == 2
        assert "--order low,medium,high" in " ".join(refused.stderr.split())
        for wrong, message in (("low,high", "lacks medium"), ("low,medium,high,top", "No row has the label 'top'")):
            refused = call("fit", path, *small, "--out", tmp_path / "out", "--order", wrong)
            assert refused.exit_code == 2
            assert message in " ".join(refused.stderr.split())
    fitted = call("fit", path, *small, *order, "--models", "linear", "--folds", 3, "--out", tmp_path / "out")
    assert fitted.exit_code == 0, fitted.output
    predicted = call("predict", tmp_path / "out", path, "--out", tmp_path / "p.csv", "--quiet")
    assert predicted.exit_code == 0, predicted.output
    kappa = true_kappa(words, pd.read_csv(tmp_path / "p.csv")["predicted"])
    evaluated = call("evaluate", tmp_path / "out", path, "--target", "y", "--json", "--report", tmp_path / "r.html")
    result = json.loads(evaluated.stdout)
    assert result["value"] == pytest.approx(kappa)
    assert list(result["confusion"]) == ORDER
    assert result["classes"]["low"]["rows"] == (words == "low").sum()
    assert result["classes"]["low"]["metrics"]["auroc"]["value"] > 0.7
