"""Decisions by expected costs: Bayes decisions for costs, cut points for ordered classes, and what carries them."""

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score

from metricfit import metrics
from metricfit.decide import CostDecision, DecisionModule, OffsetDecision, best_decision
from metricfit.decide.calibration import Calibration, fit_calibration, softmax
from metricfit.decide.choose import minus_expected_costs, search_costs
from metricfit.decide.offsets import offset_problem, search_offsets

COSTS = np.array([[0.0, 1, 4, 9], [2, 0, 1, 4], [6, 2, 0, 1], [20, 9, 3, 0]])
KAPPA = metrics.weighted_kappa(power=2)


def grades(n, seed=0):
    """Four ordered classes, some rows less certain than others; the logits are those of the true probabilities."""
    generator = torch.Generator().manual_seed(seed)
    latent = torch.randn(n, generator=generator, dtype=torch.float64)
    cuts = torch.tensor([-1.0, 0.3, 1.4], dtype=torch.float64)
    spread = torch.exp(torch.randn(n, generator=generator, dtype=torch.float64))
    below = torch.sigmoid((cuts - 1.2 * latent[:, None]) / spread[:, None])
    edges = torch.cat([torch.zeros(n, 1).double(), below, torch.ones(n, 1).double()], 1)
    probabilities = edges.diff(dim=1).clamp(min=1e-9)
    y = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
    return probabilities.log().numpy(), y.numpy()


def mean_cost(decided, y):
    return float(COSTS[y, decided].mean())


def kappa(decided, y):
    return cohen_kappa_score(y, decided, weights="quadratic")


def test_costs_are_decided_by_bayes_rule():
    """With true probabilities no decision has a lower expected cost than that of each row alone."""
    z, y = grades(2000)
    problem = offset_problem(z, y, None, metrics.cost_matrix(COSTS), "macro", rule="plugin")
    by_offsets = search_offsets(problem, 10)
    costs, offsets = search_costs(problem, by_offsets, 10)
    bayes = (softmax(z) @ COSTS).argmin(1)
    expected = float((softmax(z) * COSTS.T[bayes]).sum(1).mean())
    found = problem.value((minus_expected_costs(softmax(z), costs) + offsets).argmax(1))
    assert found == pytest.approx(expected, abs=1e-9)
    assert found < by_offsets.value


def test_ordered_classes_are_better_decided_than_by_offsets_on_the_logits():
    z, y = grades(4000)
    for rule in ("plugin", "empirical"):
        problem = offset_problem(z, y, None, KAPPA, "macro", rule=rule)
        by_offsets = search_offsets(problem, 10)
        costs, offsets = search_costs(problem, by_offsets, 10)
        decided = (minus_expected_costs(softmax(z), costs) + offsets).argmax(1)
        assert problem.value(decided) > by_offsets.value
    new, y_new = grades(20_000, seed=1)
    by_costs = (minus_expected_costs(softmax(new), costs) + offsets).argmax(1)
    assert kappa(by_costs, y_new) > kappa((new + by_offsets.offsets).argmax(1), y_new)


def test_the_best_cut_points_of_the_expected_grade_are_not_better():
    """The best decisions of quadratic kappa are cut points of the expected grade, searched here by hand."""
    z, y = grades(300)
    shares = softmax(z)
    problem = offset_problem(z, y, None, KAPPA, "macro", rule="plugin")
    costs, offsets = search_costs(problem, search_offsets(problem, 10), 10)
    found = problem.value((minus_expected_costs(shares, costs) + offsets).argmax(1))
    expected = shares @ np.arange(4.0)
    rng, best = np.random.default_rng(0), -1.0
    for _ in range(3000):
        cuts = np.sort(rng.uniform(0.2, 2.8, 3))
        best = max(best, problem.value(np.searchsorted(cuts, expected)))
    assert found >= best - 1e-9


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
def test_best_decision_is_about_the_logits_as_given(rule):
    z, y = grades(800)
    raw = 2 * z - 1  # not calibrated
    decision = best_decision(raw, y, KAPPA, rule=rule)
    assert isinstance(decision, CostDecision)
    assert decision.evidence.value == pytest.approx(kappa(decision.decide(raw), y))
    low, high = decision.evidence.corrected_interval
    assert low < decision.evidence.corrected_value < high
    calibrated = fit_calibration(raw, y, None)(raw) if rule == "plugin" else raw
    scores = minus_expected_costs(softmax(calibrated), decision.costs)
    np.testing.assert_allclose(decision.margins(raw), scores + decision.offsets)


def test_metrics_of_counts_keep_offsets_on_the_logits():
    z, y = grades(300)
    assert isinstance(best_decision(z, y, "kappa"), OffsetDecision)


def test_a_module_decides_saves_and_exports_expected_costs():
    z, y = grades(600)
    z = torch.from_numpy(z)
    decision = best_decision(2 * z, y, KAPPA)
    module = DecisionModule(torch.nn.Identity(), decision)
    labels, probabilities = module((2 * z).float())
    assert (labels == decision.decide(2 * z)).double().mean() > 0.999  # float32 may move a row at the border
    torch.testing.assert_close(probabilities.double(), decision.probabilities(2 * z), rtol=1e-4, atol=1e-6)
    other = DecisionModule(torch.nn.Identity(), OffsetDecision(torch.zeros(4)))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other((2 * z).float()).labels, labels)
    images = (2 * z).float().reshape(10, 60, 4).movedim(-1, 1)
    assert torch.equal(module(images).labels.reshape(-1), labels)
    plain = DecisionModule(torch.nn.Identity(), OffsetDecision(torch.zeros(4)))
    module.load_state_dict(plain.state_dict())
    assert torch.equal(module((2 * z).float()).labels, z.argmax(1))


def test_a_formula_that_does_not_change_near_the_matrix_has_offsets():
    in_tens = metrics.matrix_metric(lambda matrix: (matrix.diagonal(0, -2, -1).sum(-1) / 10 + 0.5) // 1)
    z, y = grades(200)
    decision = best_decision(z, y, in_tens, rule="empirical")
    assert isinstance(decision, OffsetDecision)
    assert decision.evidence.value == ((decision.decide(z) == y).sum() / 10 + 0.5) // 1


def test_calibrated_probabilities_decide():
    costs = torch.tensor([[0.0, 1, 4], [1, 0, 1], [4, 1, 0]], dtype=torch.float64)
    calibration = Calibration(1.0, torch.tensor([0.0, -50.0, 0.0], dtype=torch.float64))
    decision = CostDecision(torch.zeros(3), costs, calibration=calibration)
    assert decision.decide(torch.zeros(1, 3).double()).tolist() == [1]  # between the two that are probable
