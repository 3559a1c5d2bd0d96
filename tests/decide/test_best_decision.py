"""best_decision: from raw logits to decisions about raw logits, for two classes and several."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef

from metricfit import metrics
from metricfit.core.decisions import count_labels
from metricfit.curves import best_threshold
from metricfit.decide import best_decision
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.rules import choose_threshold
from metricfit.errors import InvalidValueError


def two_classes(n=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(n, generator=generator, dtype=torch.float64) - 2
    y = (torch.rand(n, generator=generator) < torch.sigmoid(true)).long()
    return 5 * true + 7, y


def three_classes(n=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(n, 3, generator=generator, dtype=torch.float64) - torch.tensor([0.0, 1.0, 2.0])
    y = torch.multinomial(torch.softmax(true, 1), 1, generator=generator).squeeze(1)
    return 3 * true + torch.tensor([1.0, 2.0, -1.0]), y


def test_the_threshold_is_about_the_logits_as_given():
    z, y = two_classes()
    decision = best_decision(z, y, "f1")
    calibrated = fit_calibration(z[:, None], y, None)(z[:, None]).squeeze(1)
    twin = choose_threshold(calibrated, y, None, metrics.f1, rule="plugin")
    assert torch.equal(decision.decide(z), (calibrated >= twin.threshold).long())
    assert torch.equal(decision.decide(z[:, None]), (z >= decision.threshold).long())
    assert decision.evidence.value == pytest.approx(f1_score(y, decision.decide(z)))
    low, high = decision.interval
    assert z.min() - 50 < low <= decision.threshold <= high < z.max() + 50
    assert decision.evidence.value_interval[0] <= decision.evidence.value <= decision.evidence.value_interval[1]
    assert (
        decision.evidence.corrected_interval[0]
        <= decision.evidence.corrected_value
        <= decision.evidence.corrected_interval[1]
    )


def test_calibrated_logits_are_taken_as_they_are():
    z, y = two_classes()
    calibrated = fit_calibration(z[:, None], y, None)(z[:, None])
    decision = best_decision(calibrated, y, "mcc", calibrate=False)
    assert decision.threshold == choose_threshold(calibrated.squeeze(1), y, None, metrics.mcc, rule="plugin").threshold
    assert decision.evidence.value == pytest.approx(matthews_corrcoef(y, decision.decide(calibrated)))


def test_the_empirical_rule_has_the_best_value_on_the_labels_of_any_scores():
    z, y = two_classes()
    probabilities = torch.sigmoid(z / 5)
    decision = best_decision(probabilities.numpy(), y.numpy(), "f1", rule="empirical")
    assert decision.evidence.value == pytest.approx(best_threshold(probabilities, y, "f1").value)
    assert f1_score(y, probabilities >= decision.threshold) == pytest.approx(decision.evidence.value)


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
def test_offsets_are_about_the_logits_as_given(rule):
    z, y = three_classes()
    decision = best_decision(z, y, "f1", rule=rule)
    decided = (z + torch.from_numpy(decision.offsets)).argmax(1)
    assert torch.equal(decision.decide(z), decided)
    assert decision.evidence.value == pytest.approx(f1_score(y, decided, average="macro"))
    assert decision.evidence.corrected_value < decision.evidence.value + 0.02
    if rule == "empirical":
        assert decision.evidence.value >= best_decision(z, y, "f1").evidence.value - 1e-9


@pytest.mark.parametrize("metric", ["accuracy", "mcc", "kappa", "balanced_accuracy", "weighted_kappa(power=2)"])
@pytest.mark.parametrize("rule", ["plugin", "empirical"])
def test_metrics_of_the_whole_matrix(rule, metric):
    z, y = three_classes(n=80)
    decision = best_decision(z, y, metric, rule=rule)
    expected = metrics.get_metric(metric)(count_labels(decision.decide(z), y, num_classes=3, matrix=True))
    assert decision.evidence.value == pytest.approx(float(expected))


def test_weights_count_as_copies():
    z, y = two_classes(n=120)
    copies = 1 + torch.arange(120) % 3
    by_weight = best_decision(z, y, "f1", weight=copies, calibrate=False)
    by_copies = best_decision(z.repeat_interleave(copies), y.repeat_interleave(copies), "f1", calibrate=False)
    assert by_weight.threshold == pytest.approx(by_copies.threshold)
    assert by_weight.evidence.value == pytest.approx(by_copies.evidence.value)


def test_requirements_and_what_is_reachable():
    z, y = two_classes()
    met = best_decision(z, y, "precision", subject_to="recall >= 0.8")
    assert met.evidence.not_reachable is None
    assert met.evidence.requirements["recall >= 0.8"].met
    assert met.evidence.requirements["recall >= 0.8"].value == pytest.approx(float((met.decide(z) * y).sum() / y.sum()))
    unmet = best_decision(z, y, "f1", subject_to=["recall >= 0.99", "precision >= 0.99"])
    assert unmet.evidence.not_reachable.startswith("no threshold gives recall >= 0.99 and precision >= 0.99 together")
    assert f"the nearest threshold is {unmet.threshold:.6g}, with" in unmet.evidence.not_reachable


def test_groups_are_drawn_whole():
    """Each row four times: the interval of single rows is too narrow, that of whole groups is not."""
    z, y = two_classes(n=150)
    groups = np.repeat(np.arange(150), 4)
    z, y = z.repeat_interleave(4), y.repeat_interleave(4)
    alone, whole = best_decision(z, y, "f1"), best_decision(z, y, "f1", groups=groups)
    widths = [
        decision.evidence.corrected_interval[1] - decision.evidence.corrected_interval[0] for decision in (alone, whole)
    ]
    assert widths[1] > 1.4 * widths[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "certified"}, "rule must be 'plugin', 'empirical' or 'auto'"),
        ({"average": None}, "average must be 'macro', 'micro' or 'weighted'"),
        ({"subject_to": "recall[3] >= 0.5", "logits": torch.zeros(4, 3)}, r"recall\[3\]: there are 3 classes, 0 to 2"),
        ({"subject_to": "recall['a'] >= 0.5"}, "two classes have the counts of the positive one"),
        ({"target": torch.tensor([0, 1, 2, 0])}, "class numbers from 0 to 1"),
        ({"target": torch.tensor([0, 1])}, "4 rows of logits, but 2 values of target"),
        ({"logits": torch.tensor([0.0, 1.0, torch.nan, 2.0])}, "1 of 4 logits are NaN"),
        ({"weight": torch.tensor([1.0, -1.0, 1.0, 1.0])}, "weights must be finite and at least 0"),
    ],
)
def test_what_is_refused(arguments, message):
    settings = {"logits": torch.arange(4.0), "target": torch.tensor([0, 1, 0, 1]), "metric": "f1", **arguments}
    with pytest.raises(ValueError, match=message):
        best_decision(settings.pop("logits"), settings.pop("target"), settings.pop("metric"), **settings)


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
@pytest.mark.parametrize("subject_to", [None, "recall >= 0.5"])
def test_separated_classes_leave_the_threshold_and_the_value_uncertain(rule, subject_to):
    """No resample has an error, and every threshold from -2 to 2 makes the same decisions."""
    z = torch.cat([torch.linspace(-4, -2, 60), torch.linspace(2, 4, 10)])
    decision = best_decision(z, (z > 0).long(), "f1", rule=rule, subject_to=subject_to)
    assert decision.evidence.value == 1.0
    assert decision.interval[0] <= -1.99
    assert decision.interval[1] >= 1.99
    for low, high in (decision.evidence.value_interval, decision.evidence.corrected_interval):
        assert 0.6 < low < 0.95
        assert decision.evidence.corrected_value <= high <= 1.0


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
def test_another_prevalence_is_decided_for_as_with_weights(rule):
    z, y = two_classes(2000)
    share = float(y.double().mean())
    weight = torch.where(y == 1, 0.5 / share, 0.5 / (1 - share))
    decision = best_decision(z, y, "f1", rule=rule, prevalence=0.5)
    reference = best_decision(z, y, "f1", rule=rule, weight=weight)
    assert (decision.decide(z) == reference.decide(z)).double().mean() > 0.98
    assert decision.threshold < best_decision(z, y, "f1", rule=rule).threshold
    if rule == "plugin":
        assert float((weight * decision.probabilities(z)).mean()) == pytest.approx(0.5, abs=0.01)
    else:
        assert decision.calibration is None
        assert decision.evidence.value == pytest.approx(f1_score(y, decision.decide(z), sample_weight=weight))


def test_another_prevalence_of_several_classes():
    z, y = three_classes(2000)
    shares = torch.bincount(y).double() / len(y)
    new = shares.flip(0)
    decision = best_decision(z, y, "f1", prevalence=new)
    reference = best_decision(z, y, "f1", weight=(new / shares)[y])
    assert (decision.decide(z) == reference.decide(z)).double().mean() > 0.97
    mean = ((new / shares)[y][:, None] * decision.probabilities(z)).mean(0)
    assert torch.allclose(mean, new, atol=0.02)


@pytest.mark.parametrize("prevalence", [0.0, 1.0, [0.2, 0.3], [0.2, 0.3, 0.5], float("nan")])
def test_shares_that_are_none_are_refused(prevalence):
    z, y = two_classes(50)
    with pytest.raises(ValueError, match="prevalence is the share"):
        best_decision(z, y, "f1", prevalence=prevalence)


def test_a_confidence_is_not_for_another_prevalence():
    z, y = two_classes(50)
    with pytest.raises(ValueError, match="prevalence or confidence"):
        best_decision(z, y, "precision", subject_to="recall >= 0.5", confidence=0.9, prevalence=0.5)


@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_one_class_are_refused(label):
    with pytest.raises(InvalidValueError, match=f"all rows are of one class, {label}"):
        best_decision(torch.randn(10), torch.full((10,), label), "f1")
