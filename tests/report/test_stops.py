"""What the page carries for the explorer is what the library says, at every threshold and for every metric."""

import json
import math

import numpy as np
import pytest
import torch
from page_parts import carried, decoded, stop_for

from metricfit import Counts, curves, get_metric, metrics, report
from metricfit.report import stops as module


def sample(n, *, seed=0, ties=None, weighted=False):
    r = np.random.default_rng(seed)
    y = (r.random(n) < 0.3).astype(int)
    y[:2] = 0, 1
    s = 1 / (1 + np.exp(-(r.normal(size=n) + 1.5 * y - 1)))
    w = r.random(n) + 0.5 if weighted else None
    return (s if ties is None else np.round(s * ties) / ties), y, w


def page(s, y, w=None, *, threshold=0.4, metric="f1", requirements=()):
    """What the page would carry; that it does is a test of its own."""
    required = [metrics.parse_requirement(each) for each in requirements]
    return decoded(module.compute_stops(s, y, w, threshold, get_metric(metric), required).payload())


def brute_force(s, y, w, t):
    w = np.ones(len(s)) if w is None else w
    return [float(w[((s >= t) == called) & (y == label)].sum()) for called, label in ((1, 1), (1, 0), (0, 1), (0, 0))]


@pytest.mark.parametrize("weighted", [False, True])
def test_every_metric_at_any_threshold_is_the_textbook_one(naive, weighted):
    s, y, w = sample(300, weighted=weighted)
    with_parameters = ["tversky(alpha=0.3, beta=0.7) >= 0.1", "cost_matrix([[0, 1], [10, 0]]) <= 9"]
    required = [*with_parameters, "weighted_kappa(power=2) >= -0.9"]
    found = page(s, y, w, metric="cost(fp=1, fn=10)", requirements=required)
    assert set(metrics.names()) <= {get_metric(name).base_name for name in found.metrics}
    assert found.complete
    for t in [0, 1, 0.5, 0.4, *np.random.default_rng(1).random(40), *s[:10]]:
        at = stop_for(found.thresholds, t)
        counts = brute_force(s, y, w, t)
        assert [found.counts[name][at] for name in ("tp", "fp", "fn", "tn")] == pytest.approx(counts, abs=1e-9)
        for name, values in found.metrics.items():
            expected = naive.metric(get_metric(name), *counts)
            assert values[at] == pytest.approx(float(expected), abs=1e-9), (name, t)


def test_the_page_carries_it():
    s, y, w = sample(60, weighted=True)
    settings = {"threshold": 0.4, "metric": "fbeta(beta=3)", "requirements": ["recall >= 0.9"]}
    html = report.render(report.Report("t", "h", "v", [report.scores(s, y, weight=w, **settings)]))
    (data,) = carried(html)
    required = [metrics.parse_requirement("recall >= 0.9")]
    expected = module.compute_stops(s, y, w, 0.4, get_metric("fbeta(beta=3)"), required).payload()
    assert {name: data[name] for name in expected} == json.loads(json.dumps(expected))


def test_values_are_the_librarys_to_the_bit():
    s, y, _ = sample(200)
    found = page(s, y)
    for at, t in enumerate(found.thresholds):
        counts = Counts.from_labels(s >= t, y)
        for name, values in found.metrics.items():
            assert values[at] == get_metric(name)(counts).item(), name


def test_many_scores_keep_the_thresholds_that_matter():
    s, y, _ = sample(20_000)
    required = ["precision >= 0.6", "recall >= 0.5"]
    found = page(s, y, threshold=0.123456, metric="mcc", requirements=required)
    assert not found.complete
    assert len(found.thresholds) <= module.MAX_STOPS + 3
    best = curves.best_threshold(s, y, "mcc", required)
    at = stop_for(found.thresholds, best.threshold)
    assert found.thresholds[at] == best.threshold
    assert found.metrics["mcc"][at] == best.value
    assert found.thresholds[found.chosen] == 0.123456
    for t in (0.5, 0.123456, *found.thresholds[::50]):
        at = stop_for(found.thresholds, t)
        assert found.thresholds[at] == t
        assert [found.counts[name][at] for name in ("tp", "fp", "fn", "tn")] == brute_force(s, y, None, t)


def test_many_scores_keep_every_threshold_of_three_decimals():
    s, y, _ = sample(20_000)
    found = page(s, y, threshold=0.123456)
    held = set(found.thresholds)
    for thousandths in range(1001):
        assert float(f"0.{thousandths:03}" if thousandths < 1000 else "1") in held
    at = stop_for(found.thresholds, 0.6)
    assert [found.counts[name][at] for name in ("tp", "fp", "fn", "tn")] == brute_force(s, y, None, 0.6)
    assert found.labels[at] == "0.6"


def test_many_scores_of_a_rare_class_leave_no_wide_gap():
    r = np.random.default_rng(0)
    y = (r.random(50_000) < 0.002).astype(int)
    s = 1 / (1 + np.exp(-(r.normal(size=50_000) + 6 * y - 6)))
    found = page(s, y)
    finite = found.thresholds[:-1]
    assert np.diff(finite).max() <= max(0.01, np.diff(np.sort(s)).max())
    assert np.abs(np.diff(found.metrics["recall"])).max() < 0.02
    assert np.abs(np.diff(found.metrics["fpr"])).max() < 0.01


def test_labels_decide_as_their_stop_does():
    s, y, _ = sample(3000, seed=3)
    s[:40] = 0.3 + np.arange(40) * 1e-9
    for settings in ({}, {"threshold": 0.3 + 3e-9}):
        found = page(s, y, **settings)
        for t, label in zip(found.thresholds[:-1], found.labels[:-1], strict=True):
            assert ((s >= float(label)) == (s >= t)).all()
    assert found.labels[-1] == "above every score"


def test_requirements_are_met_where_the_library_says():
    s, y, _ = sample(400, ties=50)
    required = ["recall >= 0.8", "precision >= 0.5"]
    found = page(s, y, requirements=required)
    for at, t in enumerate(found.thresholds):
        counts = Counts(*brute_force(s, y, None, t))
        for each in required:
            assert found.met[each][at] == str(int(metrics.parse_requirement(each).holds(counts).item()))
    assert set(found.met["recall >= 0.8"]) == {"0", "1"}


@pytest.mark.parametrize("required", [["recall >= 0.8"], ["precision >= 0.75"], ["recall >= 0.6", "precision >= 0.5"]])
def test_the_shaded_stretches_are_where_thresholds_are_feasible(required):
    s, y, _ = sample(150, ties=100)
    spans = module.compute_stops(
        s, y, None, 0.5, get_metric("f1"), list(map(metrics.parse_requirement, required))
    ).spans
    for t in np.linspace(0.0025, 0.9975, 200):
        counts = Counts(*brute_force(s, y, None, t))
        feasible = all(bool(metrics.parse_requirement(each).holds(counts)) for each in required)
        assert feasible == any(start < t <= end for start, end in spans), t


def test_nothing_feasible_is_said():
    section = report.scores([0.9, 0.2, 0.8], [0, 1, 0], threshold=0.5, requirements="precision >= 0.9")
    assert section.context["stops"].spans == []
    assert section.context["stops"].best is None
    html = report.render(report.Report("t", "h", "v", [section]))
    assert "No threshold meets this on these scores." in html
    assert "No threshold gives precision &gt;= 0.9." in html


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_no_curves_and_says_so(label):
    html = report.render(report.Report("t", "h", "v", [report.scores([0.2, 0.7, 0.9], [label] * 3, threshold=0.5)]))
    found = decoded(carried(html)[0])
    at = stop_for(found.thresholds, 0.5)
    assert found.counts["tp" if label else "fp"][at] == 2
    assert "there is no ROC and no precision-recall curve" in html
    assert "ROC curve" not in html


def test_equal_scores():
    found = page([0.3] * 4, [0, 1, 0, 1])
    at = stop_for(found.thresholds, 0.3)
    assert [found.counts[name][at] for name in ("tp", "fp", "fn", "tn")] == [2, 2, 0, 0]
    at = stop_for(found.thresholds, 0.31)
    assert [found.counts[name][at] for name in ("tp", "fp", "fn", "tn")] == [0, 0, 2, 2]


@pytest.mark.parametrize("threshold", [0, 1, 1.5, math.inf])
def test_extreme_thresholds(threshold):
    found = page([0.0, 0.5, 1.0, 1.0], [0, 1, 0, 1], threshold=threshold)
    expected = brute_force(np.array([0.0, 0.5, 1.0, 1.0]), np.array([0, 1, 0, 1]), None, threshold)
    assert [found.counts[name][found.chosen] for name in ("tp", "fp", "fn", "tn")] == expected


def test_float32_scores_stay_what_they_are():
    s, y, _ = sample(100)
    s = torch.from_numpy(s).float()
    t = curves.best_threshold(s, y, "f1").threshold
    found = page(s, y, threshold=t)
    assert found.metrics["f1"][found.chosen] == curves.best_threshold(s, y, "f1").value


@pytest.mark.parametrize(
    ("scores", "labels", "settings", "message"),
    [
        ([], [], {}, "there are no scores"),
        ([0.1, math.nan], [0, 1], {}, "1 of 2 scores are NaN"),
        ([0.1, math.inf], [0, 1], {}, "1 of 2 scores are infinite"),
        (
            [-2.0, 3.0],
            [0, 1],
            {},
            r"scores must lie in \[0, 1\], got -2 to 3; pass probabilities, such as torch.sigmoid",
        ),
        ([0.1, 0.2], [0, 2], {}, "target must hold 0 and 1 only"),
        ([0.1, 0.2], [0, 1, 1], {}, "2 scores, but 3 values of target"),
        ([0.1, 0.2], [0, 1], {"threshold": math.nan}, "threshold must be at least 0, got nan"),
        ([0.1, 0.2], [0, 1], {"threshold": -1}, "threshold must be at least 0, got -1"),
        ([0.1, 0.2], [0, 1], {"classes": ("a",)}, "classes names the negative and the positive class, got 1"),
        ([0.1, 0.2], [0, 1], {"weight": [1, -1]}, "weights must be finite and at least 0"),
        ([0.1, 0.2], [0, 1], {"metric": "precison"}, "did you mean 'precision'"),
    ],
)
def test_wrong_inputs_are_refused(scores, labels, settings, message):
    with pytest.raises(ValueError, match=message):
        report.scores(scores, labels, **({"threshold": 0.5} | settings))


def test_what_is_0_over_0_is_not_known_as_the_command_says():
    found = module.compute_stops([0.2, 0.4, 0.7], [0, 1, 1], None, 0.5, metrics.f1, [])
    last = len(found.thresholds) - 1  # nothing is called positive
    assert [found.text(name, last) for name in ("precision", "recall", "f1")] == ["not known", "0.000", "0.000"]
    assert found.text("precision", found.chosen, "percent") == "100.0\u00a0%"
    assert found.payload()["unknown"]["precision"] == "0" * last + "1"
