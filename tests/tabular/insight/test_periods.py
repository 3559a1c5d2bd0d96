"""Values by period: against naive ones, a warning where rows drift, and none where they do not."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from typer.testing import CliRunner

from metricfit import MetricClassifier, TunedDecisionClassifier, metrics
from metricfit.cli.app import app
from metricfit.tabular.insight.judged_rows import held_out_decisions
from metricfit.tabular.insight.value_intervals import Period, describe_fall, value_of_rows, values_by_period

FAST = {"models": ["linear"], "random_state": 0}


def rows(seed, drifting, number=1500):
    """Rows in the order of time; the columns of drifting rows lose their meaning in the last sixth."""
    r = np.random.default_rng(seed)
    X = pd.DataFrame(r.normal(size=(number, 3)), columns=list("abc"))
    meaning = np.where(np.arange(number) < number * 5 / 6, 1.0, 0.0 if drifting else 1.0)
    return X, (meaning * 2 * X["a"] + r.normal(size=number) > 1).to_numpy().astype(int)


def fall_of(model, periods):
    return describe_fall(periods, model.decision_.evidence.value, metrics.f1)


def test_the_values_are_those_of_scikit_learn_and_the_drift_is_said():
    X, y = rows(0, drifting=True)
    model = MetricClassifier("f1", cv="forward", **FAST).fit(X, y)
    times = pd.Series(pd.date_range("2024-01-01", periods=len(y), freq="h"))
    periods = values_by_period(model, times)
    assert sum(period.rows for period in periods) == len(model.held_out_.y)
    places, decided = model.chosen_.basis.places.rows, held_out_decisions(model)
    for period in periods:
        part = (times[places] >= period.first) & (times[places] <= period.last)
        assert period.rows == part.sum()
        assert period.value == pytest.approx(f1_score(y[places][part], decided[part]))
        assert period.interval[0] <= period.value <= period.interval[1]
    assert periods[0].first < periods[1].first
    assert fall_of(model, periods).startswith(f"Later rows are decided worse: f1 is {periods[-1].value:.3f} (")
    assert values_by_period(model)[-1].last == "row 1,500"


def test_rows_that_do_not_drift_rarely_seem_to():
    said = 0
    for seed in range(20):
        X, y = rows(seed, drifting=False)
        model = TunedDecisionClassifier(LogisticRegression(), "f1", cv=_forward(), random_state=0).fit(X, y)
        said += fall_of(model, values_by_period(model)) is not None
    assert said <= 3  # 2.5 % are expected at most


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", [metrics.f1, metrics.precision, metrics.cost(fp=1, fn=5)])
def test_a_period_with_fewer_positives_by_chance_is_no_fall(metric, weighted):
    """With the class shares held fixed, precision seemed to fall in a third of the draws."""
    r, said, draws = np.random.default_rng(0), 0, 120
    for _ in range(draws):
        y = (r.random(600) < 0.2).astype(int)
        decided = np.where(y == 1, r.random(600) < 0.98, r.random(600) < 0.9).astype(int)
        weight = np.ones(600) if weighted else None
        value, _ = value_of_rows(decided, y, 2, metric, "macro", weight, None)
        last = None if weight is None else weight[-120:]
        period = Period("a", "b", 120, *value_of_rows(decided[-120:], y[-120:], 2, metric, "macro", last, None))
        said += describe_fall([period], value, metric) is not None
    assert said <= 0.06 * draws


def _forward():
    from sklearn.model_selection import TimeSeriesSplit

    return TimeSeriesSplit(3)


def test_lower_can_be_better():
    periods = [Period("1", "2", 50, 0.1, (0.05, 0.15)), Period("3", "4", 50, 0.4, (0.3, 0.5))]
    assert describe_fall(periods, 0.2, metrics.cost(fp=1, fn=1)) is not None
    assert describe_fall(periods, 0.2, metrics.f1) is None
    assert describe_fall([], 0.2, metrics.f1) is None


def test_there_are_no_periods_without_an_order(tmp_path):
    X, y = rows(0, drifting=True, number=300)
    assert values_by_period(MetricClassifier("f1", members=3, **FAST).fit(X, y)) == []
    model = MetricClassifier("f1", cv="forward", **FAST).fit(X, y)
    assert len(values_by_period(model)) == 2
    model.save(tmp_path / "model")
    assert values_by_period(MetricClassifier.load(tmp_path / "model")) == []


def test_fit_prints_the_periods_and_the_page_shows_them(tmp_path):
    X, y = rows(0, drifting=True)
    table = X.assign(y=y, day=pd.date_range("2020-01-01", periods=len(y)).strftime("%Y-%m-%d"))
    table.sample(frac=1, random_state=0).to_csv(tmp_path / "t.csv", index=False)
    asked = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--time", "day", "--models", "linear", "--no-insight"]
    ended = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "out")])
    assert ended.exit_code == 0, ended.output
    said = " ".join(ended.stdout.split())
    assert "Warning: Later rows are decided worse: f1 is" in said
    assert "to 2024-02-08" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Values over time" in page
    assert page.count("Later rows are decided worse") == 2
    ended = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "json"), "--json", "--quiet"])
    printed = json.loads(ended.stdout)
    assert [period["last"] for period in printed["periods"]][-1] == "2024-02-08"
    assert printed["fall"].startswith("Later rows are decided worse")
