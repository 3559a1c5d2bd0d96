"""Models from outside metricfit in compare, beside scikit-learn's cross_val_predict and metrics on the same folds."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import f1_score, recall_score
from sklearn.model_selection import PredefinedSplit, TimeSeriesSplit, TunedThresholdClassifierCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from metricfit import TunedDecisionClassifier, decide
from metricfit.data import folds
from metricfit.errors import InvalidValueError
from metricfit.runs.cells import CellError
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.methods import DEFAULT, METHODS, REFERENCE, CategoryColumns, OwnModel, read_predictions

N = 180


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"])
    return X, np.where(X["a"] + rng.normal(size=N) > 0.8, "bad", "good")


def positive(y):
    return (np.asarray(y) == "bad").astype(int)


def splits_of(X, y, n=3, **settings):
    return list(folds(X, positive(y), n, seed=0, **settings))


def values_of(comparison, name):
    return next(row.values for row in comparison.rows if row.name == name)


def values_by_fold(decided, y, splits):
    return [f1_score(positive(y)[test], positive(decided)[test]) for _, test in splits]


@pytest.fixture(scope="module")
def compared(table):
    X, y = table
    mine = make_pipeline(StandardScaler(), LogisticRegression(class_weight={"bad": 3.0, "good": 1.0}))
    return mine, compare(X, y, "f1", methods=[("mine", mine), GaussianNB()], folds=3)


def test_the_plain_row_is_cross_val_predict_of_the_model_on_the_same_folds(table, compared):
    X, y = table
    mine, comparison = compared
    splits = splits_of(X, y)
    for name, model in (("mine", mine), ("GaussianNB", GaussianNB())):
        decided = cross_val_predict(model, X, y, cv=splits)
        assert values_of(comparison, name) == pytest.approx(values_by_fold(decided, y, splits))
        kept = comparison.decisions[name]
        np.testing.assert_array_equal(kept.decided, positive(decided))
        for train, test in splits:
            fitted = clone(model).fit(X.iloc[train], y[train])
            np.testing.assert_allclose(kept.scores[test], fitted.predict_proba(X.iloc[test])[:, 0])  # of "bad"


def test_the_reference_is_lightgbm_as_it_comes(table, compared):
    X, y = table
    splits = splits_of(X, y)
    decided = cross_val_predict(LGBMClassifier(n_jobs=1, random_state=0, verbose=-1), X, y, cv=splits)
    assert values_of(compared[1], REFERENCE) == pytest.approx(values_by_fold(decided, y, splits))


def test_the_tuned_row_is_tuned_decision_classifier_on_each_folds_training_rows(table, compared):
    X, y = table
    mine, comparison = compared
    expected = []
    for train, test in splits_of(X, y):
        model = TunedDecisionClassifier(mine, "f1", random_state=0).fit(X.iloc[train], y[train])
        expected.append(f1_score(y[test], model.predict(X.iloc[test]), pos_label="bad"))
    assert values_of(comparison, "mine, tuned") == pytest.approx(expected)
    assert 0 < comparison.decisions["mine, tuned"].threshold < 1


def test_only_what_is_named_is_compared_and_the_reference(table, compared):
    models = {"mine", "mine, tuned", "GaussianNB", "GaussianNB, tuned", REFERENCE}
    without = {"all positive", "none positive", "at random"}
    assert {row.name for row in compared[1].rows} == models | without
    X, y = table
    assert {row.name for row in compare(X, y, methods=[], folds=2).rows} == {REFERENCE} | without


def test_networks_are_compared_only_if_asked(table, monkeypatch):
    X, y = table
    ran = []
    monkeypatch.setattr("metricfit.tabular.compare.comparison.run", lambda cells, *rest, **options: ran.append(cells))
    for settings in ({}, {"networks": True}, {"methods": ["network (cross-entropy)"]}):
        with pytest.raises(TypeError):  # nothing was trained
            compare(X, y, folds=2, **settings)
    quick, everything, named = ({cell.training.name for cell in cells} for cells in ran)
    networks = {name for name in everything if name.startswith("network")}
    assert len(networks) >= 4
    assert everything - networks == quick
    families = {model for method in METHODS for model in method.models if isinstance(model, str)}
    assert quick == families | {REFERENCE}
    assert named == {"network bce", REFERENCE}


def test_the_comparison_gives_the_classifiers_and_a_marked_table(table, compared):
    X, y = table
    _, comparison = compared
    tuned = comparison.classifier("mine, tuned", random_state=0)
    assert (type(tuned), tuned.metric, tuned.pos_label) == (TunedDecisionClassifier, "f1", "bad")
    assert set(tuned.fit(X, y).predict(X)) == {"bad", "good"}
    assert comparison.classifier("mine").fit(X, y).score(X, y) > 0.5
    assert comparison.classifier(REFERENCE).fit(X, y).score(X, y) > 0.8
    frame = comparison.to_frame()
    assert frame["method"][0] == REFERENCE
    assert frame.loc[frame["recommended"], "method"].tolist() == [comparison.recommended]
    by_name = frame.set_index("method")
    for row in comparison.rows:
        assert by_name.loc[row.name, "mean"] == row.mean
        difference = by_name.loc[row.name, "difference"]
        assert np.isnan(difference) if row.difference is None else difference == row.difference


def test_a_terminal_shows_the_verdict_and_the_table(compared):
    _, comparison = compared
    first, *_, last = repr(comparison).splitlines()
    assert first == comparison.verdict
    assert last.split()[0] in {"none", "at"}
    for row in comparison.rows:
        assert f"{row.name} {row.mean:.3f}" in " ".join(repr(comparison).split())


def test_a_notebook_shows_the_verdict_and_escapes_names(table):
    X, y = table
    comparison = compare(X, y, methods=[("<b>mine</b>", GaussianNB())], folds=2)
    shown = comparison._repr_html_()
    assert "<b>mine" not in shown
    assert shown.count("&lt;b&gt;mine&lt;/b&gt;, tuned") >= 2
    visible, folded = shown.split("<details>")
    assert visible.count("\N{BLACK RIGHT-POINTING TRIANGLE}") == 1
    assert "The rule: " in folded
    assert "The rule: " not in visible


def test_words_become_categories_for_a_classifier_that_is_no_pipeline(table):
    X, y = table
    rng = np.random.default_rng(0)
    town = pd.Series(rng.choice(["Ulm", "Bonn", None], N), dtype=object)
    X = X.assign(town=town, day=pd.date_range("2024-01-01", periods=N), sure=rng.random(N) > 0.5)
    splits = splits_of(X, y)
    encoded = X.assign(town=town.astype("category"), day=X["day"].astype("int64").astype(float))
    mine = LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1)
    encoding = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), ("passthrough", ["a", "b"]))
    pipeline = make_pipeline(encoding, LogisticRegression())
    comparison = compare(X, y, methods=[("trees", mine), ("mine", pipeline)], folds=3)
    expected = values_by_fold(cross_val_predict(mine, encoded, y, cv=splits), y, splits)
    assert values_of(comparison, "trees") == pytest.approx(expected)
    expected = values_by_fold(cross_val_predict(pipeline, X, y, cv=splits), y, splits)
    assert values_of(comparison, "mine") == pytest.approx(expected)


def test_categories_that_are_new_count_as_missing():
    train = pd.DataFrame({"town": ["Ulm", None, "Bonn"], "age": pd.array([1, None, 3], dtype="Int64")})
    columns = CategoryColumns().fit(train)
    found = columns.transform(pd.DataFrame({"town": ["Rom", "Ulm", None], "age": [1.0, 2.0, None]}))
    assert found.iloc[:, 0].isna().tolist() == [True, False, True]
    assert found.iloc[:, 1].tolist()[:2] == [1.0, 2.0]


def test_groups_and_times_hold_for_own_models(table):
    X, y = table
    groups = np.arange(N) // 3
    splits = splits_of(X, y, groups=groups)
    comparison = compare(X, y, methods=[GaussianNB()], folds=3, groups=groups)
    decided = cross_val_predict(GaussianNB(), X, y, cv=splits)
    assert values_of(comparison, "GaussianNB") == pytest.approx(values_by_fold(decided, y, splits))

    shuffled = np.random.default_rng(0).permutation(N)
    forward = compare(X.iloc[shuffled], y[shuffled], methods=[GaussianNB()], folds=2, time=np.arange(N)[shuffled])
    expected = [
        f1_score(positive(y)[test], positive(GaussianNB().fit(X.iloc[train], y[train]).predict(X.iloc[test])))
        for train, test in TimeSeriesSplit(2).split(X)
    ]
    assert values_of(forward, "GaussianNB") == pytest.approx(expected)
    assert len(values_of(forward, "GaussianNB, tuned")) == 2
    assert forward.classifier("GaussianNB, tuned").ensemble is False


def test_several_classes_and_requirements_by_name(table):
    X, _ = table
    y = np.array(["low", "middle", "high"])[np.digitize(X["a"] + 0.5 * X["b"], [-0.5, 0.7])]
    comparison = compare(X, y, methods=[GaussianNB()], folds=3, subject_to="recall['high'] >= 0.8")
    splits = list(folds(X, np.searchsorted(comparison.classes, y), 3, seed=0))
    decided = cross_val_predict(GaussianNB(), X, y, cv=splits)
    expected = [f1_score(y[test], decided[test], average="macro") for _, test in splits]
    assert values_of(comparison, "GaussianNB") == pytest.approx(expected)
    rows = {row.name: row for row in comparison.rows}
    (judged,) = rows["GaussianNB"].requirements
    assert judged.value == pytest.approx(recall_score(y, decided, labels=["high"], average=None)[0])
    assert comparison.recommended == "GaussianNB, tuned"  # what is plain was not decided for the requirement
    assert comparison.decisions["GaussianNB, tuned"].scores.shape == (N, 3)


def test_a_classifier_without_scores_has_a_plain_row_and_a_note(table):
    X, y = table

    class Stump(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.classes_ = np.unique(y)
            return self

        def predict(self, X):
            return np.where(X["a"] > 0.5, "bad", "good")

    comparison = compare(X, y, methods=[Stump(), ("ridge", RidgeClassifier())], folds=2)
    names = {row.name for row in comparison.rows}
    assert {"Stump", "ridge", "ridge, tuned"} < names
    assert "Stump, tuned" not in names
    assert comparison.notes[0].startswith("Stump, tuned is left out: ")
    assert comparison.decisions["ridge"].scores is None
    splits = splits_of(X, y, 2)
    expected = values_by_fold(np.where(X["a"] > 0.5, "bad", "good"), y, splits)
    assert values_of(comparison, "Stump") == pytest.approx(expected)


def test_a_classifier_that_chooses_its_decision_has_one_row(table):
    X, y = table
    chosen = [TunedThresholdClassifierCV(GaussianNB()), TunedDecisionClassifier(GaussianNB(), "f1")]
    names = {row.name for row in compare(X, y, methods=chosen, folds=2).rows}
    assert {"TunedThresholdClassifierCV", "TunedDecisionClassifier"} < names
    assert not any(name.endswith(", tuned") for name in names)


def test_a_model_that_fails_is_named(table):
    X, y = table
    with pytest.raises(CellError, match=r"GaussianNB .* could not convert string to float"):
        compare(X.assign(town="Ulm"), y, methods=[("GaussianNB", make_pipeline(GaussianNB()))], folds=2)


def test_trainings_are_read_again_until_the_model_changes(table, tmp_path):
    X, y = table

    def finished():
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("report.json")}

    settings = {"folds": 2, "folder": tmp_path}
    first = compare(X, y, methods=[("mine", GaussianNB())], **settings)
    before = finished()
    assert compare(X, y, methods=[("mine", GaussianNB())], **settings).rows == first.rows
    assert finished() == before
    other = compare(X, y, methods=[("mine", GaussianNB(var_smoothing=10.0))], **settings)
    assert values_of(other, "mine") != values_of(first, "mine")
    assert len(finished()) == len(before) + 2
    compare(X, y, methods=[OwnModel("mine", GaussianNB(), version="another file")], **settings)
    assert len(finished()) == len(before) + 4


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([GaussianNB], r"an object, not a class: pass GaussianNB\(\)"),
        ([("mine", 3)], "a method is a name or a scikit-learn classifier; got 3"),
        ([GaussianNB(), GaussianNB()], "'GaussianNB' names two methods"),
        ([(DEFAULT, GaussianNB())], "'metricfit' names two methods"),
        ([("mine", GaussianNB()), ("mine, tuned", GaussianNB())], "'mine, tuned' names two methods"),
        (DEFAULT, r"methods is a list, such as \['metricfit'\]"),
    ],
)
def test_what_is_no_method_is_refused(table, methods, message):
    with pytest.raises(InvalidValueError, match=message):
        compare(*table, methods=methods, folds=2)


@pytest.fixture(scope="module")
def outside(table):
    """Probabilities by models of other folds, as another program would write them."""
    X, y = table
    fold = np.random.default_rng(1).integers(0, 4, N)
    probabilities = cross_val_predict(GaussianNB(), X, y, cv=PredefinedSplit(fold), method="predict_proba")
    return probabilities[:, 0], fold


class TestPredictions:
    def test_labels_and_probabilities_are_judged_on_our_folds(self, table, outside):
        X, y = table
        probabilities, _ = outside
        labels = np.where(probabilities > 0.3, "bad", "good")
        given = {"theirs": probabilities, "today": pd.Series(labels), "words": pd.DataFrame({"label": labels})}
        comparison = compare(X, y, methods=["logistic regression"], predictions=given, folds=3)
        splits = splits_of(X, y)
        expected = values_by_fold(np.where(probabilities >= 0.5, "bad", "good"), y, splits)
        assert values_of(comparison, "theirs") == pytest.approx(expected)
        for name in ("today", "words"):
            assert values_of(comparison, name) == pytest.approx(values_by_fold(labels, y, splits))
            assert f"{name}, tuned" not in {row.name for row in comparison.rows}
        logits = np.log(probabilities / (1 - probabilities))
        expected = []
        for train, test in splits:
            decision = decide.best_decision(logits[train], positive(y)[train], "f1")
            expected.append(f1_score(positive(y)[test], np.asarray(decision.decide(logits[test][:, None]))))
        assert values_of(comparison, "theirs, tuned") == pytest.approx(expected)
        rows = {row.name: row for row in comparison.rows}
        assert rows["theirs"].seconds is None
        with pytest.raises(InvalidValueError, match="compared by its predictions"):
            comparison.classifier("theirs, tuned")

    def test_a_column_fold_makes_the_folds(self, table, outside):
        X, y = table
        probabilities, fold = outside
        given = pd.DataFrame({"good": 1 - probabilities, "bad": probabilities, "fold": fold})
        comparison = compare(X, y, methods=[GaussianNB()], predictions={"theirs": given})
        splits = list(PredefinedSplit(fold).split())
        assert len(values_of(comparison, "theirs")) == 4
        expected = values_by_fold(np.where(probabilities >= 0.5, "bad", "good"), y, splits)
        assert values_of(comparison, "theirs") == pytest.approx(expected)
        assert values_of(comparison, "GaussianNB") == pytest.approx(expected)  # the same model, by its predictions

    def test_predictions_follow_the_rows_in_the_order_of_time(self, table, outside):
        X, y = table
        probabilities, _ = outside
        order = np.random.default_rng(0).permutation(N)
        when = pd.Series(np.argsort(order), name="when")
        comparison = compare(X, y, methods=[], predictions={"theirs": probabilities}, folds=2, time=when)
        decided = np.where(probabilities >= 0.5, "bad", "good")[order]
        expected = values_by_fold(decided, y[order], list(TimeSeriesSplit(2).split(y)))
        assert values_of(comparison, "theirs") == pytest.approx(expected)

    def test_what_predict_writes_is_read(self):
        written = pd.DataFrame(
            {"predicted": ["no", "no"], "probability of no": [0.3, 0.8], "probability of yes": [0.7, 0.2]}
        )
        found = read_predictions("ours", written, np.array(["no", "yes"]), 2)
        assert (found.decided.tolist(), found.probabilities[:, 1].tolist()) == ([0, 0], [0.7, 0.2])

    @pytest.mark.parametrize(("column", "decided"), [([1.0, 0.0], [1, 0]), ([True, False], [1, 0]), ([1, 0], [1, 0])])
    def test_numbers_that_are_labels_are_labels(self, column, decided):
        labels = np.array([False, True]) if isinstance(column[0], bool) else np.array([0, 1])
        found = read_predictions("theirs", column, labels, 2)
        assert (found.decided.tolist(), found.probabilities) == (decided, None)

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([0.1], "are of 1 rows, and the table has 2"),
            ([0.1, 1.2], "no probabilities from 0 to 1"),
            ([0.1, None], "missing in some rows"),
            (["yes", "maybe"], "hold 'maybe', which is no label"),
            ({"id": [1, 2], "score": [0.1, 0.2]}, "have the columns 'id', 'score': give one column of labels"),
        ],
    )
    def test_what_is_no_prediction_is_refused(self, values, message):
        with pytest.raises(InvalidValueError, match=message):
            read_predictions("theirs", values, np.array(["no", "yes"]), 2)

    def test_folds_that_differ_are_refused(self, table, outside):
        X, y = table
        given = {name: pd.DataFrame({"p": outside[0], "fold": fold}) for name, fold in (("a", outside[1]), ("b", 0))}
        with pytest.raises(InvalidValueError, match="must agree on the folds"):
            compare(X, y, methods=[], predictions=given)
        with pytest.raises(InvalidValueError, match="a comparison needs two folds"):
            compare(X, y, methods=[], predictions={"b": given["b"]})


def test_one_threshold_decides_the_shifted_probabilities_as_the_folds_decided(table):
    result = compare(*table, "f1", methods=["logistic regression", "extra trees"], folds=3)
    several = 0
    for kept in result.decisions.values():
        if len(kept.thresholds) == 3:
            several += len(set(kept.thresholds)) > 1
            np.testing.assert_array_equal(kept.scores_at_mean >= kept.threshold, kept.decided == 1)
            for fold in range(3):
                part = kept.folds == fold
                np.testing.assert_array_equal(np.argsort(kept.scores_at_mean[part]), np.argsort(kept.scores[part]))
    assert several >= 2
