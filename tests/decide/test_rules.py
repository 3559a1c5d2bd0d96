"""The plug-in threshold against a brute-force search over all thresholds, with weights, ties and requirements."""

import math

import pytest
import torch

from metricfit import Counts, metrics
from metricfit.decide.rules import choose_threshold
from metricfit.metrics import parse_requirement

METRICS = ["f1", "fbeta(beta=2)", "mcc", "gmean", "accuracy", "kappa", "cost(fp=1, fn=10)", "p4", "precision"]


def rows(seed, n=30, *, ties=False, weighted=False):
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(n, generator=generator, dtype=torch.float64) - 1
    if ties:
        z = z.round()
    y = (torch.rand(n, generator=generator) < torch.sigmoid(z)).long()
    weight = torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    return z, y, weight


def expected_counts(z, weight, threshold):
    """Row by row: a row is p of a positive and 1 - p of a negative."""
    tp = fp = fn = tn = 0.0
    for logit, w in zip(z.tolist(), [1.0] * len(z) if weight is None else weight.tolist(), strict=True):
        p = 1 / (1 + math.exp(-logit))
        if logit >= threshold:
            tp, fp = tp + w * p, fp + w * (1 - p)
        else:
            fn, tn = fn + w * p, tn + w * (1 - p)
    return Counts(tp, fp, fn, tn)


def observed_counts(z, y, weight, threshold):
    return Counts.from_labels((z >= threshold).long(), y, weight=weight)


def candidates(z):
    return [*sorted(set(z.tolist())), math.inf]


@pytest.mark.parametrize(
    "settings", [{}, {"ties": True}, {"weighted": True}, {"ties": True, "weighted": True}], ids=str
)
@pytest.mark.parametrize("metric", METRICS)
def test_the_plug_in_threshold_is_that_of_brute_force(metric, settings):
    measure = metrics.get_metric(metric)
    pick = min if measure.minimize else max
    for seed in range(4):
        z, y, weight = rows(seed, **settings)
        best = pick(measure(expected_counts(z, weight, t)).item() for t in candidates(z))
        chosen = choose_threshold(z, y, weight, measure, rule="plugin")
        assert measure(expected_counts(z, weight, chosen.threshold)).item() == pytest.approx(best, abs=1e-12), seed
        on_labels = measure(observed_counts(z, y, weight, chosen.threshold)).item()
        assert chosen.value == pytest.approx(on_labels, abs=1e-12), seed
        assert chosen.threshold not in z.tolist(), seed


@pytest.mark.parametrize("seed", range(6))
def test_requirements_hold_on_the_labels_and_on_expected_counts_where_both_can(seed):
    z, y, weight = rows(seed, weighted=True)
    requirements = [parse_requirement("recall >= 0.7"), parse_requirement("fpr <= 0.5")]

    def meets(counts):
        return all(bool(requirement.holds(counts)) for requirement in requirements)

    on_labels = {t for t in candidates(z) if meets(observed_counts(z, y, weight, t))}
    on_both = {t for t in on_labels if meets(expected_counts(z, weight, t))}
    allowed = on_both or on_labels
    chosen = choose_threshold(z, y, weight, metrics.precision, requirements, rule="plugin")
    assert chosen.feasible == bool(on_labels)
    if allowed:
        best = max(metrics.precision(expected_counts(z, weight, t)).item() for t in allowed)
        found = metrics.precision(expected_counts(z, weight, chosen.threshold)).item()
        assert found == pytest.approx(best)
        assert all(result.met for result in chosen.requirements.values())


def test_the_requirement_on_expected_counts_changes_the_choice():
    """Six rows that are called positive, all of them by luck: the labels alone allow a recall of 1 up to logit 2."""
    z = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0, -1.0], dtype=torch.float64)
    y = torch.tensor([1, 1, 0, 0, 0, 0])
    requirement = [parse_requirement("recall >= 0.8")]
    by_labels = choose_threshold(z, y, None, metrics.precision, requirement, rule="empirical")
    by_both = choose_threshold(z, y, None, metrics.precision, requirement, rule="plugin")
    assert by_labels.threshold == 1.5
    assert by_both.threshold == 0.25
    assert by_both.requirements["recall >= 0.8"].value == 1.0


def test_the_nearest_threshold_if_no_threshold_meets_the_requirements():
    z, y, _ = rows(3)
    requirements = [parse_requirement("precision >= 0.99"), parse_requirement("recall >= 0.99")]
    chosen = choose_threshold(z, y, None, metrics.f1, requirements, rule="plugin")

    def violation(threshold):
        counts = observed_counts(z, y, None, threshold)
        return max(float(requirement.violation(counts)) for requirement in requirements)

    assert not chosen.feasible
    assert violation(chosen.threshold) == pytest.approx(min(violation(t) for t in candidates(z)))


def test_auto_is_plugin_and_other_rules_are_refused():
    z, y, _ = rows(0)
    assert choose_threshold(z, y, None, metrics.f1, rule="auto") == choose_threshold(
        z, y, None, metrics.f1, rule="plugin"
    )
    with pytest.raises(ValueError, match="rule must be 'plugin', 'empirical' or 'auto', got 'best'"):
        choose_threshold(z, y, None, metrics.f1, rule="best")


def test_rows_of_weight_0_do_not_count():
    z, y, weight = rows(1, weighted=True)
    weight[::3] = 0
    kept = weight > 0
    part = choose_threshold(z[kept], y[kept], weight[kept], metrics.f1, rule="plugin")
    whole = choose_threshold(z, y, weight, metrics.f1, rule="plugin")
    assert whole.value == pytest.approx(part.value)
    assert torch.equal(z[kept] >= whole.threshold, z[kept] >= part.threshold)
