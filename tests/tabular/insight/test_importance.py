"""Permutation importance, against scikit-learn's and against repeated draws of the rows."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, make_scorer
from sklearn.multioutput import MultiOutputClassifier

from metricfit import MetricClassifier, TunedDecisionClassifier

pytestmark = pytest.mark.filterwarnings("error")

#: Shuffles per column, so many that their spread is known well; both sides are seeded.
REPEATS = 30


@pytest.fixture(scope="module")
def halves(messy):
    frame, y = messy[0][["number", "kind", "flag", "category", "same"]], messy[1]
    return (frame[:150], y[:150]), (frame[150:], y[150:])


@pytest.fixture(scope="module")
def model(halves, quick_settings):
    return MetricClassifier("f1", **quick_settings).fit(*halves[0])


@pytest.fixture(scope="module")
def three(quick_settings):
    """Three classes that two of four columns tell apart."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 4))
    y = np.digitize(X[:, 0] + X[:, 2] + 0.5 * rng.normal(size=200), [-0.7, 0.7])
    return MetricClassifier("f1", **quick_settings).fit(X[:120], y[:120]), X, y


def agrees(ours, theirs, names):
    by_column = ours.table.set_index("column").loc[list(names)]
    spread = np.hypot(theirs.importances_std, theirs.importances_std.max() / 10)
    error = spread * np.sqrt(1 / theirs.importances.shape[1] + 1 / ours.repeats)
    return (np.abs(by_column["importance"].to_numpy() - theirs.importances_mean) <= 4 * error + 1e-12).all()


def test_importance_is_that_of_scikit_learn_for_the_same_metric(model, halves):
    X, y = halves[1]
    ours = model.importance(X, y, repeats=REPEATS, random_state=0)
    scoring = make_scorer(f1_score, pos_label="yes")
    theirs = permutation_importance(model, X, y, scoring=scoring, n_repeats=REPEATS, random_state=0)
    assert ours.value == pytest.approx(f1_score(y, model.predict(X), pos_label="yes"))
    assert list(ours.table.columns) == ["column", "importance", "low", "high"]
    assert agrees(ours, theirs, X.columns)
    assert ours.table["importance"].is_monotonic_decreasing
    assert (ours.table["low"] <= ours.table["importance"]).all()
    assert (ours.table["high"] >= ours.table["importance"]).all()


def test_several_classes_and_weights(three):
    model, X, y = three
    ours = model.importance(X[120:], y[120:], repeats=REPEATS, random_state=0)
    scoring = make_scorer(f1_score, average="macro")
    theirs = permutation_importance(model, X[120:], y[120:], scoring=scoring, n_repeats=REPEATS, random_state=0)
    assert agrees(ours, theirs, ["x0", "x1", "x2", "x3"])
    assert set(ours.table["column"][:2]) == {"x0", "x2"}
    assert ours.metric == "macro f1"
    weight = np.where(y[120:] == 1, 3.0, 1.0)
    weighted = model.importance(X[120:], y[120:], sample_weight=weight)
    assert weighted.value == pytest.approx(
        f1_score(y[120:], model.predict(X[120:]), average="macro", sample_weight=weight)
    )


def test_intervals_cover_the_importance_on_all_rows():
    """A given rule, many small draws of rows: about 95 % of the intervals hold the value of a very large table."""
    rng = np.random.default_rng(0)

    def draw(n):
        X = rng.normal(size=(n, 2))
        return X, (X @ [1.5, 0.7] + rng.logistic(size=n) > 0.5).astype(int)

    estimator = LogisticRegression().fit(*draw(1000))
    model = TunedDecisionClassifier(estimator, "f1", cv="prefit", random_state=0).fit(*draw(300))
    exact = model.importance(*draw(20_000), repeats=1, max_rows=None).table.set_index("column")["importance"]
    held = []
    for seed in range(40):
        table = model.importance(*draw(120), repeats=3, random_state=seed).table.set_index("column")
        held += ((table["low"] <= exact) & (exact <= table["high"])).tolist()
    assert 0.89 <= np.mean(held) <= 0.995


def test_a_sample_of_rare_rows_is_weighted_by_class():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=3000) > 1.9).astype(int)
    model = TunedDecisionClassifier(LogisticRegression(), "f1", cv=2, random_state=0).fit(X, y)
    whole, sample = (model.importance(X, y, out_of_fold=True, max_rows=size) for size in (None, 600))
    assert sample.rows == 600
    assert sample.value == pytest.approx(whole.value, abs=0.1)
    low, high = sample.table.iloc[0][["low", "high"]]
    assert low < whole.table["importance"][0] < high
    assert "sample of 600 of 3,000 rows" in repr(sample)


def test_out_of_fold_rows_are_decided_by_models_that_have_not_seen_them(quick_settings):
    """A model that learns noise by heart finds it important on its own rows, and not out of fold."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(120, 3)), rng.integers(2, size=120)
    settings = {**quick_settings, "models": ["extra_trees"]}
    model = MetricClassifier("accuracy", **settings).fit(X, y)
    on_training_rows = model.importance(X, y, repeats=2)
    honest = model.importance(X, y, repeats=2, out_of_fold=True)
    assert on_training_rows.value > 0.9
    assert on_training_rows.table["low"].max() > 0.05
    assert honest.value == pytest.approx(
        float((model.decision_.decide(model.held_out_.logits) == model.held_out_.y).mean())
    )
    assert honest.value < 0.7
    assert "not trained on it" in repr(honest)


@pytest.mark.parametrize("family", ["boosting_small", "kernel"])
def test_models_of_folds_score_their_rows_as_in_fit(blobs, quick_settings, family):
    X, y = blobs[0][:150], blobs[1][:150]
    groups = np.digitize(X[:, 0], [-0.5, 0.2, 0.6, 0.9, 1.2])  # folds with very different shares of the classes
    model = MetricClassifier("f1", **{**quick_settings, "models": [family]}).fit(X, y, groups=groups)
    places = model.chosen_.basis.places
    logits = model._logits_out_of_fold(X[places.rows], places.folds, model.chosen_.basis.scorers)
    assert np.allclose(logits, model.held_out_.logits, atol=1e-5)


def test_out_of_fold_needs_the_rows_of_fit(model, halves, tmp_path):
    (X, y), (others, _) = halves
    assert len(model.importance(X, y, out_of_fold=True, repeats=1).table) == X.shape[1]
    with pytest.raises(ValueError, match="rows of fit in their order"):
        model.importance(others, y, out_of_fold=True)
    with pytest.raises(ValueError, match="150 rows of fit; X has 149"):
        model.importance(X[:-1], y[:-1], out_of_fold=True)
    with pytest.raises(ValueError, match="leave sample_weight out"):
        model.importance(X, y, out_of_fold=True, sample_weight=np.ones(150))
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="which are not saved"):
        MetricClassifier.load(tmp_path / "model").importance(X, y, out_of_fold=True)


def test_rows_of_weight_zero_keep_their_numbers(blobs, quick_settings):
    X, y = blobs[0][:100], blobs[1][:100]
    weight = np.where(np.arange(100) % 3, 1.0, 0.0)
    model = MetricClassifier("f1", **quick_settings).fit(X, y, sample_weight=weight)
    assert set(model.worst(X, y, out_of_fold=True, n=100).numbers) == set(np.flatnonzero(weight))


@pytest.mark.parametrize("make", [pd.DataFrame, csr_matrix, lambda X: X.tolist()])
def test_tables_of_every_kind(blobs, quick_settings, make):
    X, y = blobs[0][:120], blobs[1][:120]
    table = pd.DataFrame(X, columns=list("abcd")) if make is pd.DataFrame else make(X)
    model = MetricClassifier("f1", **quick_settings).fit(table, y)
    result = model.importance(table, y, out_of_fold=True, repeats=2)
    assert result.table["column"][0] == ("a" if make is pd.DataFrame else "x0")
    assert len(result.table) == 4


def test_costs_from_a_column_are_those_of_the_row(quick_settings):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"amount": rng.exponential(100, 200), "hint": rng.normal(size=200)})
    y = (frame["hint"] + 0.5 * rng.normal(size=200) > 0.8).astype(int)
    model = MetricClassifier("cost(fp=10, fn='amount')", **quick_settings).fit(frame, y)
    result = model.importance(frame, y, out_of_fold=True)
    table = result.table.set_index("column")
    assert result.value == pytest.approx(model.decision_.evidence.value)
    assert table["low"]["hint"] > 0  # a cost that rises without the column
    assert table["importance"]["amount"] > 0  # the decision no longer knows what a miss costs


def test_time_ends_the_shuffles_and_is_reported(model, halves):
    result = model.importance(*halves[1], max_seconds=1e-9)
    assert len(result.table) == 0
    assert "no time for" in repr(result)


def test_wrong_use(model, halves, blobs, quick_settings):
    X, y = halves[1]
    with pytest.raises(ValueError, match=r"X lacks 1 of the columns of training: 'kind'. Did you mean 'Kind'"):
        model.importance(X.rename(columns={"kind": "Kind"}), y)
    with pytest.raises(ValueError, match="at least 10 rows"):
        model.importance(X[:5], y[:5])
    with pytest.raises(ValueError, match="all rows are 'no'"):
        model.importance(X[y == "no"], y[y == "no"])
    with pytest.raises(ValueError, match="not there in fit: 'maybe'"):
        model.importance(X, np.where(y == "no", "maybe", y))
    with pytest.raises(ValueError, match="inconsistent"):
        model.importance(X, y[1:])
    with pytest.raises(TypeError, match="repeats is a whole number of shuffles"):
        model.importance(X, y, repeats=1.5)
    with pytest.raises(TypeError, match="max_seconds"):
        model.importance(X, y, max_seconds="1")
    with pytest.raises(NotFittedError):
        MetricClassifier().importance(X, y)
    labels = TunedDecisionClassifier(MultiOutputClassifier(LogisticRegression()), cv=2)
    matrix = np.stack([blobs[1], 1 - blobs[1]], axis=1)
    with pytest.raises(TypeError, match="several labels per row"):
        labels.fit(blobs[0], matrix).importance(blobs[0], matrix)
