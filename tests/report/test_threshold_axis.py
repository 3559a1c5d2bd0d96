"""The axis of thresholds, and what depends on it: ranges of a rare class, other methods, and groups."""

import numpy as np
import pytest
from page_parts import carried, decoded
from scipy.special import expit, logit
from sklearn.metrics import confusion_matrix, mean_absolute_error, precision_score

from metricfit import get_metric, metrics, report
from metricfit.report.stops import LINEAR, ThresholdAxis, choose_axis, compute_groups, compute_stops


def test_logits_are_scipys_and_the_ends_hold_what_is_beyond():
    axis = ThresholdAxis("logit", -9.0, 3.0)
    inside = np.array([0.001, 0.2, 0.9])
    assert mean_absolute_error(axis.places(inside), logit(inside)) < 1e-12
    assert axis.places([0.0, 1.0, np.inf, 1e-9]).tolist() == [-9.0, 3.0, 3.0, -9.0]
    places, texts = zip(*axis.ticks(), strict=True)
    assert texts == ("0.001", "0.01", "0.1", "0.5", "0.9")
    assert places == pytest.approx([logit(float(text)) for text in texts])


@pytest.mark.parametrize(
    ("scores", "labels", "threshold", "kind"),
    [
        ([0.2, 0.8], [0, 1], 0.5, "linear"),
        ([0.2, 0.8], [0, 1], 0.001, "logit"),
        ([0.2, 0.8], [0, 1], 0.995, "logit"),
        ([0.2, 0.8], [0, 1], np.inf, "linear"),
        ([0.2, 0.8], [0, 0], 0.5, "logit"),
        ([0.0] * 99 + [1.0], [0] * 99 + [1], 0.5, "logit"),
        ([1.0] * 99 + [0.0], [1] * 99 + [0], 0.5, "logit"),
    ],
)
def test_the_axis_is_in_logits_where_a_class_is_rare_or_a_threshold_extreme(scores, labels, threshold, kind):
    axis = choose_axis([scores], labels, [threshold])
    assert axis.kind == kind
    assert np.isfinite([axis.low, axis.high]).all()
    assert axis.low < axis.high


def test_ranges_of_small_thresholds_stay_apart_on_an_axis_in_logits():
    """On a linear axis they are too close together to be told apart."""
    s, y = [1e-5, 1e-4, 3e-4, 4e-4, 5e-4], [0, 0, 1, 0, 1]
    spans = {
        axis.kind: compute_stops(s, y, None, 3e-4, get_metric("f1"), [metrics.precision >= 0.6], axis=axis).spans
        for axis in (LINEAR, choose_axis([s], y, [3e-4]))
    }
    assert spans == {"linear": [(1e-4, 5e-4)], "logit": [(1e-4, 3e-4), (4e-4, 5e-4)]}


def test_other_methods_have_fewer_stops_and_exact_counts_at_each():
    r = np.random.default_rng(0)
    y = (r.random(900) < 0.3).astype(int)
    one, two = (expit(2 * y - 1 + r.normal(size=900)) for _ in range(2))
    section = report.scores(one, y, threshold=0.4, others={"other": report.ScoredMethod(two, 0.35)})
    first, other = map(decoded, carried(report.render(report.Report("t", "h", "v", [section]))))
    assert len(first.thresholds) > 900
    assert len(other.thresholds) <= 310
    assert other.thresholds[other.chosen] == 0.35
    for at in range(0, len(other.thresholds) - 1, 30):
        (tn, fp), (fn, tp) = confusion_matrix(y, two >= other.thresholds[at]).tolist()
        assert [other.counts[name][at] for name in ("tp", "fp", "fn", "tn")] == [tp, fp, fn, tn]


def test_weighted_groups_are_sums_of_weights():
    r = np.random.default_rng(0)
    s, y, w = r.random(200), r.integers(0, 2, 200).astype(float), r.random(200) + 0.5
    groups = r.choice(["a", "b", "c"], 200)
    thresholds = np.array([0.1, 0.5, np.inf])
    for group in compute_groups(s, y, w, groups, thresholds, metrics.precision):
        inside = groups == group.name
        for at, t in enumerate(thresholds):
            expected = precision_score(y[inside], s[inside] >= t, sample_weight=w[inside], zero_division=0)
            assert group.values[at] == pytest.approx(expected)
    assert compute_groups(s, y, w, np.arange(200), thresholds, metrics.precision) == []
    assert compute_groups(s, y, w, ["one"] * 200, thresholds, metrics.precision) == []
