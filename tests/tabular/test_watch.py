"""Watching a model in use: what each requirement counts, when an alarm is raised, and what cannot be watched."""

import copy

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, jaccard_score, precision_score, recall_score
from sklearn.multioutput import MultiOutputClassifier

from metricfit import Counts, MetricClassifier, TunedDecisionClassifier
from metricfit.errors import InvalidValueError
from metricfit.metrics import get_metric, parse_requirement
from metricfit.stats.betting import bet_against
from metricfit.tabular.watch import fraction


def rows(n, noise=0.4, seed=0, classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    signal = X[:, 0] + noise * rng.normal(size=n)
    return X, np.digitize(signal, [0.5] if classes == 2 else [-0.5, 0.5])


@pytest.fixture(scope="module")
def model():
    fitted = MetricClassifier("precision", subject_to="recall >= 0.85", models=["linear"], random_state=0)
    return fitted.fit(*rows(600))


def test_values_and_counted_rows_are_those_of_scikit_learn(model):
    X, y = rows(900, seed=1)
    called = model.predict(X)
    wanted = ["recall >= 0.1", "precision >= 0.1", "f1 >= 0.1", "jaccard >= 0.1", "accuracy >= 0.1", "fpr <= 0.9"]
    found = model.watch(X, y, subject_to=[*wanted, "cost(fp=1, fn=5) <= 3"]).requirements
    assert [each.value for each in found] == pytest.approx(
        [
            recall_score(y, called),
            precision_score(y, called),
            f1_score(y, called),
            jaccard_score(y, called),
            accuracy_score(y, called),
            called[y == 0].mean(),
            np.mean((called & (y == 0)) + 5.0 * ((called == 0) & (y == 1))),
        ]
    )
    assert [each.rows for each in found] == [
        *(y.sum(), called.sum(), (called | y).sum(), (called | y).sum(), 900, (y == 0).sum(), 900)
    ]


def test_an_alarm_is_raised_after_a_fall_and_stays(model):
    parts = [rows(1500, seed=2), rows(1500, noise=1.5, seed=3)]
    X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    assert not model.watch(X[:1500], y[:1500]).alarm
    watch = model.watch(X, y)
    (found,) = watch.requirements
    assert watch.alarm
    assert not found.held
    assert found.false_alarm <= 0.05
    assert 1400 < found.begins_row < found.alarm_row < 1800
    assert "ALARM" in str(watch)
    earlier = model.watch(X[: found.alarm_row], y[: found.alarm_row])  # looks do not change what they show
    assert earlier.requirements[0].alarm_row == found.alarm_row
    assert not model.watch(X[: found.alarm_row - 1], y[: found.alarm_row - 1]).alarm


def test_the_bets_are_on_positives_against_the_bound(model):
    X, y = rows(400, noise=1.0, seed=4)
    hits = model.predict(X)[y == 1]
    expected = bet_against((hits - 0.85) / 0.15).wealth.max(initial=0)
    assert model.watch(X, y).requirements[0].false_alarm == pytest.approx(np.exp(-expected))


def test_several_requirements_share_the_false_alarms(model):
    X, y = rows(3000, noise=0.75, seed=5)
    one, two = model.watch(X, y), model.watch(X, y, subject_to=["recall >= 0.85", "fpr <= 1"])
    assert one.requirements[0].alarm_row < two.requirements[0].alarm_row
    strict = model.watch(X, y, confidence=0.975)
    assert strict.requirements[0].alarm_row == two.requirements[0].alarm_row


def test_classes_and_labels_are_watched_one_by_one():
    X, y = rows(600, classes=3)
    names = np.array(["low", "middle", "high"])
    tuned = TunedDecisionClassifier(LogisticRegression(), random_state=0).fit(X, names[y])
    found = tuned.watch(X, names[y], subject_to=["recall[high] >= 0.2", "accuracy >= 0.2"]).requirements
    called = tuned.predict(X)
    assert [each.text for each in found] == ["recall['high'] >= 0.2", "accuracy >= 0.2"]
    assert [each.value for each in found] == pytest.approx(
        [(called[y == 2] == "high").mean(), (called == names[y]).mean()]
    )
    labels = np.stack([y > 0, y > 1], axis=1).astype(int)
    several = TunedDecisionClassifier(MultiOutputClassifier(LogisticRegression()), random_state=0).fit(X, labels)
    (found,) = several.watch(X, labels, subject_to="precision[1] >= 0.2").requirements
    assert found.value == pytest.approx(precision_score(labels[:, 1], several.predict(X)[:, 1]))


def test_referred_rows_do_not_count(model):
    X, y = rows(400, noise=1.0, seed=6)
    refers = copy.deepcopy(model).refer(max_share=0.2)
    called = refers.predict(X)
    assert refers.watch(X, y).requirements[0].rows == ((called != "refer") & (y == 1)).sum()


@pytest.mark.parametrize("text", ["mcc >= 0.5", "recall == 0.9", "tp/n >= 0.1"])
def test_what_cannot_be_watched_is_refused(model, text):
    with pytest.raises(InvalidValueError, match="cannot be watched"):
        model.watch(*rows(50), subject_to=text)


def test_a_model_without_requirement_and_unknown_labels_are_refused():
    plain = MetricClassifier("f1", models=["linear"], random_state=0).fit(*rows(200))
    with pytest.raises(InvalidValueError, match="no requirement to watch"):
        plain.watch(*rows(50))
    with pytest.raises(InvalidValueError, match="not there in fit"):
        plain.watch(rows(50)[0], np.full(50, 7), subject_to="recall >= 0.5")


def test_a_bound_of_one_fails_with_the_first_misses_and_rows_may_be_missing(model):
    X, y = rows(200, noise=1.5, seed=7)
    (found,) = model.watch(X, y, subject_to="recall >= 1").requirements
    assert not found.held
    assert found.alarm_row < 100
    negatives = y == 0
    (empty,) = model.watch(X[negatives], y[negatives]).requirements
    assert empty.held
    assert empty.value is None
    assert "no row counts" in str(empty)


@pytest.mark.parametrize("name", ["fbeta(beta=2)", "f1", "jaccard", "cost(fp=0.2, fn=0.7)", "npv", "selection_rate"])
def test_ratios_agree_with_the_formulas(name):
    counts = Counts(tp=7, fp=3, fn=2, tn=11)
    part, whole = fraction(parse_requirement(f"{name} >= 0.5"), counts)
    assert part / whole == pytest.approx(get_metric(name)(counts))


def test_the_picture_has_the_bound_the_values_and_the_evidence(model):
    watch = model.watch(*rows(900, seed=8), subject_to=["recall >= 0.85", "fpr <= 0.3"], times=np.arange(900) + 2000)
    axes = watch.plot().axes
    assert [axis.get_ylabel() for axis in axes[::2]] == ["recall >= 0.85", "fpr <= 0.3"]
    values, bound = axes[0].get_lines()
    assert np.average(values.get_ydata()) == pytest.approx(watch.requirements[0].value, abs=0.01)
    assert set(bound.get_ydata()) == {0.85}
    assert axes[1].get_lines()[1].get_ydata()[0] == pytest.approx(np.log(2 / 0.05))
    assert next(tick.get_text() for tick in axes[-1].get_xticklabels()) == "2000"


def test_decisions_that_were_made_take_the_place_of_the_rows(model):
    X, y = rows(900, seed=1)
    assert model.watch(None, y, predicted=model.predict(X)).requirements == model.watch(X, y).requirements
    with pytest.raises(InvalidValueError, match="predicted has 899 rows and y has 900"):
        model.watch(None, y, predicted=y[1:])
    with pytest.raises(InvalidValueError, match="labels that were not there in fit: 7"):
        model.watch(None, y, predicted=np.full(900, 7))
    with pytest.raises(InvalidValueError, match="times has 3 rows and y has 900"):
        model.watch(X, y, times=[1, 2, 3])


def test_rows_that_were_referred_do_not_count():
    fitted = MetricClassifier("f1", models=["linear"], random_state=0).fit(*rows(600)).refer(max_share=0.2)
    X, y = rows(900, seed=1)
    called = fitted.predict(X)
    assert (called == "refer").any()
    made = fitted.watch(None, y, subject_to="recall >= 0.5", predicted=called)
    assert made.requirements == fitted.watch(X, y, subject_to="recall >= 0.5").requirements


def test_several_labels_are_checked():
    X, y = rows(400)
    fitted = TunedDecisionClassifier(MultiOutputClassifier(LogisticRegression()), "f1").fit(X, np.stack([y, 1 - y], 1))
    labels = np.stack([y, 1 - y], 1)
    found = fitted.watch(None, labels, subject_to="recall[0] >= 0.5", predicted=labels).requirements[0]
    assert found.value == 1
    with pytest.raises(InvalidValueError, match="y is a matrix of 0 and 1 with 2 columns"):
        fitted.watch(X, y, subject_to="recall[0] >= 0.5")
