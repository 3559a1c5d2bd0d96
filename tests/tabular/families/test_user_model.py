"""The user's own classifiers as a family."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.tabular.families.family import Deadline, Features, OutOfTime, TrainingRows
from metricfit.tabular.families.user_model import SMALLEST_PROBABILITY, UserModel

NO_LIMIT = Deadline()


def fit(model, rows, seed=0):
    return UserModel("mine", model).fit(rows, rows, seed=seed, deadline=NO_LIMIT)


@pytest.fixture
def with_text(make_rows):
    rows = make_rows(2)
    town = np.where(rows.y == 1, "Ulm", np.where(rows.x[:, 0] > 0, "Bonn", "Köln"))
    frame = pd.DataFrame({"size": rows.x[:, 0], "town": town})
    return TrainingRows(Features(rows.x, frame), rows.y, np.linspace(0.5, 2, len(rows)), 2)


def pipeline():
    encode = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["size"]))
    return make_pipeline(encode, LogisticRegression())


def test_a_pipeline_gets_the_table_and_its_last_step_the_weights(with_text):
    expected = pipeline().fit(with_text.features.table, with_text.y, logisticregression__sample_weight=with_text.weight)
    logits = fit(pipeline(), with_text).logits(with_text.features)
    np.testing.assert_allclose(logits[:, 0], expected.decision_function(with_text.features.table), atol=1e-6)
    unweighted = fit(pipeline(), TrainingRows(with_text.features, with_text.y, None, 2)).logits(with_text.features)
    assert np.abs(unweighted - logits).max() > 0.01


def test_other_classifiers_get_the_encoded_columns(rows, held_out):
    expected = GaussianNB().fit(rows.x, rows.y).predict_proba(held_out.x)
    expected = np.clip(expected, SMALLEST_PROBABILITY, None)
    logs = np.log(expected / expected.sum(axis=1, keepdims=True))
    expected_logits = logs[:, 1:] - logs[:, :1] if rows.classes == 2 else logs
    np.testing.assert_allclose(fit(GaussianNB(), rows).logits(held_out.features), expected_logits, rtol=1e-4, atol=1e-5)


def test_probabilities_of_0_have_finite_logits(rows):
    assert np.isfinite(fit(KNeighborsClassifier(1), rows).logits(rows.features)).all()


def test_scores_serve_where_there_are_no_probabilities(rows, held_out):
    expected = LinearSVC(random_state=0).fit(rows.x, rows.y).decision_function(held_out.x)
    logits = fit(LinearSVC(), rows).logits(held_out.features)
    np.testing.assert_allclose(logits, expected.reshape(len(held_out), -1))


@pytest.mark.parametrize("model", [GaussianNB(), LinearSVC()], ids=["probabilities", "scores"])
@pytest.mark.parametrize("missing", [[2], [0, 3]])
def test_classes_that_a_fold_misses_are_the_least_likely(make_rows, model, missing):
    rows = make_rows(4)
    some = rows.take(np.flatnonzero(~np.isin(rows.y, missing)))
    fitted = fit(model, some)
    logits = fitted.logits(rows.features)
    known = np.setdiff1d(np.arange(4), missing)
    assert (logits[:, missing].max(axis=1) <= logits[:, known].min(axis=1)).all()
    assert (known[logits[:, known].argmax(axis=1)] == fitted.model.predict(rows.x)).all()
    one_by_one = [fitted.logits(rows.features.take(np.array([row])))[0] for row in range(20)]
    np.testing.assert_allclose(one_by_one, logits[:20])


def test_weights_that_a_classifier_cannot_take_are_refused(rows):
    weighted = TrainingRows(rows.features, rows.y, np.ones(len(rows)), rows.classes)
    with pytest.raises(InvalidValueError, match="'mine' takes no sample_weight"):
        UserModel("mine", KNeighborsClassifier()).reason_to_skip(weighted)
    with pytest.raises(InvalidValueError, match="'mine' takes no sample_weight"):
        UserModel("mine", make_pipeline(StandardScaler(), KNeighborsClassifier())).reason_to_skip(weighted)
    UserModel("mine", KNeighborsClassifier()).reason_to_skip(rows)


def test_the_seed_reaches_classifiers_that_have_none(rows):
    forest = RandomForestClassifier(5)
    first, again, other = (fit(forest, rows, seed=seed).logits(rows.features) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert forest.random_state is None
    assert not hasattr(forest, "classes_")
    seeded = [fit(RandomForestClassifier(5, random_state=7), rows, seed=seed).logits(rows.features) for seed in (1, 2)]
    np.testing.assert_array_equal(*seeded)


def test_only_classifiers_are_taken():
    for wrong in (Ridge(), "boosting", None, object()):
        with pytest.raises(InvalidTypeError, match="a model is the name of a family"):
            UserModel("mine", wrong)


def test_it_stops_at_the_deadline(rows):
    with pytest.raises(OutOfTime):
        UserModel("mine", GaussianNB()).fit(rows, rows, seed=0, deadline=Deadline.after(-1.0))


class WithoutParameters(ClassifierMixin, BaseEstimator):
    """The smallest classifier there is."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_a_classifier_of_the_users_own_class(rows):
    logits = fit(WithoutParameters(), rows).logits(rows.features)
    assert logits.shape == (len(rows), rows.outputs)
    assert np.ptp(logits) == pytest.approx(0.0)
