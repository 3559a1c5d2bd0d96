"""The expected metric of the k most probable pixels, against all labellings of the pixels."""

import pytest
import torch
from all_labellings import all_labellings, expected

from metricfit import metrics
from metricfit.decide.expected_values import RankedMoments, exact_values
from metricfit.metrics import get_metric


def approximate_values(ranked, metric):
    return RankedMoments(ranked).expected_values(metric, torch.arange(ranked.shape[1] + 1).expand(len(ranked), -1))


METRICS = ["f1", "jaccard", "fbeta(beta=2)", "tversky(alpha=0.3, beta=0.7)", "mcc", "2*tp/(2*tp+fp+fn)", "accuracy"]


@pytest.mark.parametrize("name", METRICS)
def test_exact_values_are_those_of_all_labellings(name):
    metric = get_metric(name)
    probabilities = torch.rand(2, 6, dtype=torch.float64, generator=torch.manual_seed(3)).sort(1, descending=True)[0]
    values = exact_values(probabilities, metric)
    for row in range(2):
        for size in range(7):
            mask = (torch.arange(6) < size).double()
            assert float(values[row, size]) == pytest.approx(expected(mask, probabilities[row], metric), abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_no_other_mask_is_better_than_the_most_probable_pixels(name):
    metric = get_metric(name)
    for seed in range(2):
        probabilities = torch.rand(1, 5, dtype=torch.float64, generator=torch.manual_seed(seed))
        best_by_size = exact_values(probabilities.sort(1, descending=True)[0], metric).max()
        best_of_all = max(expected(mask, probabilities[0], metric) for mask in all_labellings(5))
        assert float(best_by_size) == pytest.approx(best_of_all, abs=1e-12)


def test_the_approximation_is_exact_for_polynomials_of_the_third_degree():
    @metrics.metric
    def cubic(c):
        return c.tp**3 - 2 * c.tp * c.fn + 0.5 * c.fn**2

    ranked = torch.rand(3, 9, dtype=torch.float64, generator=torch.manual_seed(0)).sort(1, descending=True)[0]
    torch.testing.assert_close(approximate_values(ranked, cubic), exact_values(ranked, cubic), rtol=1e-9, atol=1e-9)


def test_certain_pixels_have_certain_values():
    ranked = torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    for values in (approximate_values(ranked, metrics.f1), exact_values(ranked, metrics.f1)):
        torch.testing.assert_close(values, torch.tensor([[0.0, 2 / 3, 1.0, 0.8]], dtype=torch.float64))


@pytest.mark.parametrize("name", ["f1", "jaccard"])
@pytest.mark.parametrize(("pixels", "power", "most"), [(20, 3.0, 5e-4), (100, 5.0, 1e-5)])
def test_the_sizes_that_the_approximation_prefers_cost_little(name, pixels, power, most):
    metric = get_metric(name)
    draws = torch.rand(50, pixels, dtype=torch.float64, generator=torch.manual_seed(1))
    ranked = (draws**power).sort(1, descending=True)[0]
    exact = exact_values(ranked, metric)
    preferred = approximate_values(ranked, metric).argmax(1, keepdim=True)
    lost = exact.max(1).values - exact.gather(1, preferred)[:, 0]
    assert lost.mean() < most
