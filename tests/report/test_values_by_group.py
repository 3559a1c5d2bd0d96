"""Values by group, against scikit-learn's on each group."""

import numpy as np
import pandas as pd
import pytest
from page_parts import parts
from sklearn.metrics import f1_score

from metricfit import MetricClassifier, metrics, report
from metricfit.report.evaluation import Decisions
from metricfit.report.tables import group_values


def by_group(decided, y, groups, *, classes, metric, weight=None):
    return group_values(Decisions(y, decided, [*"abcd"][:classes], metric, weight=weight, groups=groups))


def text_of(path):
    return " ".join(" ".join(parts(path.read_text(encoding="utf-8")).text).split())


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_each_group(classes, weighted):
    rng = np.random.default_rng(1)
    y, groups = rng.integers(classes, size=400), rng.choice(["x", "y", "z"], 400, p=[0.6, 0.37, 0.03])
    decided = np.where(rng.random(400) < 0.7, y, rng.integers(classes, size=400))
    weight = rng.random(400) + 0.5 if weighted else None
    section = by_group(decided, y, groups, classes=classes, metric=metrics.f1, weight=weight)
    listed = section.context["shown"]
    assert [row["name"] for row in listed][:2] == ["x", "y"]
    for row in listed:
        part = groups == row["name"]
        given = None if weight is None else weight[part]
        average = "binary" if classes == 2 else "macro"
        assert row["value"] == pytest.approx(f1_score(y[part], decided[part], average=average, sample_weight=given))
        low, high = row["interval"]
        assert low <= row["value"] <= high
        assert 0.05 < high - low < 0.8
    wide, narrow = (section.context["shown"][place]["interval"] for place in (1, 0))
    assert wide[1] - wide[0] > narrow[1] - narrow[0]


def test_small_groups_and_one_class():
    y, groups = np.tile([0, 1], 30), np.repeat(np.arange(12), 5)
    assert by_group(y, y, groups, classes=2, metric=metrics.f1) is None
    assert by_group(y, y, np.zeros(60), classes=2, metric=metrics.f1) is None
    section = by_group(y, y, y, classes=2, metric=metrics.f1)
    assert [row["interval"] for row in section.context["shown"]] == [None, None]
    many = by_group(np.tile(y, 5), np.tile(y, 5), np.repeat(np.arange(20), 15), classes=2, metric=metrics.f1)
    assert (len(many.context["shown"]), len(many.context["folded"])) == (12, 8)
    html = report.render(report.Report("t", "h", "v", [section, many]))
    assert "8 more groups" in html


def test_rows_that_are_referred_do_not_count():
    y = np.tile([0, 1], 40)
    decided = np.where(np.arange(80) < 10, -1, y)
    section = by_group(decided, y, np.arange(80) // 40, classes=2, metric=metrics.accuracy)
    assert [row["value"] for row in section.context["shown"]] == [1.0, 1.0]


def test_pages_of_fit_and_of_other_rows(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(180, 2)), columns=["a", "b"])
    y = np.digitize(X["a"] + 0.5 * rng.normal(size=180), [-0.5, 0.5])  # several classes: their pages are drawn quickly
    place, visits = np.where(np.arange(180) % 3 == 0, "north", "<south>").astype(object), np.arange(180) // 30
    place[1:90:3] = None
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0).fit(X, y, groups=visits)
    said = text_of(model.report(tmp_path / "page.html", X, y, groups=place))
    north = place == "north"
    assert "Values by group" in said
    assert f"north 60 {f1_score(y[north], model.predict(X[north]), average='macro'):.3f}" in said
    assert "<south> 90" in said
    assert "missing 30" in said
    assert "Values by group" not in text_of(model.report(tmp_path / "plain.html", X, y))
    assert "Values by group" in text_of(model.report(tmp_path / "fit.html"))
    with pytest.raises(ValueError, match="groups= is for other rows"):
        model.report(tmp_path / "other.html", groups=place)
    with pytest.raises(ValueError, match="inconsistent"):
        model.report(tmp_path / "other.html", X, y, groups=place[:-1])
