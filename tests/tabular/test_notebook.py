"""What a notebook shows: tables, sentences and pictures, whose numbers are those of the results."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

import metricfit
from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.errors import InvalidValueError
from metricfit.tabular import examine_table


def read_table(html):
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL)]
    return pd.DataFrame(rows[1:], columns=rows[0])


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(600, 4, n_informative=3, n_redundant=1, weights=[0.8], random_state=0)
    return pd.DataFrame(X, columns=["a", "b", "c", "<d>"]), np.where(y, "yes", "no")


@pytest.fixture(scope="module")
def model(rows):
    X, y = rows
    settings = {"models": ["linear", "extra_trees"], "members": 3, "random_state": 0}
    return MetricClassifier("f1", subject_to="recall >= 0.7", **settings).fit(X[:300], y[:300])


def test_a_fitted_model_shows_its_value_its_decision_and_its_models(model, tmp_path):
    html = model._repr_html_()
    low, high = model.value_interval_
    assert f"f1 {model.value_:.3f}</strong> (95 % interval {low:.3f} to {high:.3f})" in html
    assert "recall &gt;= 0.7: met on held-out rows" in html
    assert read_table(html)["weight"].astype(float).sum() == pytest.approx(1)
    assert model._repr_mimebundle_()["text/html"] == html
    assert repr(model.models_).split()[:2] == ["name", "weight"]
    assert model.models_.to_frame()["value"].tolist() == [row.value for row in model.models_]
    model.save(tmp_path / "model")
    assert repr(MetricClassifier.load(tmp_path / "model").models_) == repr(model.models_)


def test_a_model_that_is_not_fitted_shows_its_parameters():
    assert "estimated for new rows" not in MetricClassifier("f1")._repr_html_()
    assert "MetricClassifier" in MetricClassifier("f1")._repr_html_()


def test_findings_are_a_table_and_sentences(rows):
    X, y = rows
    found = examine_table(X.assign(y=y, always="<b>one</b>"), "y")
    table = read_table(found._repr_html_())
    assert table["severity"].tolist() == [each.severity for each in found.findings]
    assert "<b>" not in found._repr_html_()
    assert "note: 'always' has the value" in repr(found)
    assert "Nothing looks wrong" in examine_table(X.assign(y=y), "y")._repr_html_()


def test_watching_and_importance_are_shown_in_words(model, rows):
    X, y = rows
    assert "<li>recall &gt;= 0.7" in model.watch(X[300:], y[300:])._repr_html_()
    importance = model.importance(X[300:], y[300:], repeats=1)
    assert read_table(importance._repr_html_())["column"].tolist()[0] == importance.table["column"][0]


def test_thresholds_are_drawn_from_the_curve(model):
    axes = model.plot.threshold().axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines["f1"].get_ydata(), model.curve_.value[np.isfinite(model.curve_.threshold)])
    assert lines["recall >= 0.7"].get_ydata()[0] == 0.7
    assert lines[f"chosen: {model.threshold_:.3g}"].get_xdata()[0] == model.threshold_


def test_calibration_is_that_of_scikit_learn(model, rows):
    X, y = rows
    scores = model.predict_proba(X[300:])[:, 1]
    shares, means = calibration_curve(y[300:] == "yes", scores, n_bins=10, strategy="quantile")
    container = model.plot.calibration(X[300:], y[300:]).axes[0].containers[0]
    np.testing.assert_allclose(container[0].get_xdata(), means, atol=0.002)  # its groups differ by a row
    np.testing.assert_allclose(container[0].get_ydata(), shares, atol=0.04)
    assert container[0].get_ydata().mean() == pytest.approx((y[300:] == "yes").mean())
    assert model.plot.calibration().axes[0].containers[0][0].get_ydata()[-1] > 0.5


def test_the_confusion_matrix_is_that_of_scikit_learn(model, rows):
    X, y = rows
    expected = confusion_matrix(y[300:], model.predict(X[300:]))
    shown = [text.get_text() for text in model.plot.confusion(X[300:], y[300:]).axes[0].texts]
    assert shown == [str(count) for count in expected.ravel()]
    held_out = [int(text.get_text()) for text in model.plot.confusion().axes[0].texts]
    assert sum(held_out) == 300


def test_importance_and_comparisons_are_drawn(model, rows):
    X, y = rows
    bars = model.plot.importance(X[300:], y[300:], repeats=1, random_state=0).axes[0].patches
    table = model.importance(X[300:], y[300:], repeats=1, random_state=0).table
    assert [bar.get_width() for bar in bars] == pytest.approx(table["importance"][::-1].tolist())
    result = metricfit.compare(X.assign(y=y), "y", "f1", methods=["logistic regression"], folds=2)
    picture = result.plot()
    names = [tick.get_text() for tick in picture.axes[0].get_yticklabels()]
    assert names[-1].endswith("LightGBM as it comes")
    assert [name for name in names if name.startswith("▶")] == [f"▶ {result.recommended}"]
    assert picture._repr_png_()[:4] == b"\x89PNG"


def test_models_without_one_threshold_say_so():
    X, y = make_classification(200, 4, n_informative=3, n_redundant=0, n_classes=3, random_state=0)
    several = TunedDecisionClassifier(LogisticRegression(), random_state=0).fit(X[:100], y[:100])
    X, y = X[100:], y[100:]
    with pytest.raises(InvalidValueError, match="two classes"):
        several.plot.threshold()
    with pytest.raises(InvalidValueError, match="two classes"):
        several.plot.calibration()
    counts = [int(text.get_text()) for text in several.plot.confusion(X, y).axes[0].texts]
    assert counts == confusion_matrix(y, several.predict(X)).ravel().tolist()
    assert "estimated for new rows" in several._repr_html_()
