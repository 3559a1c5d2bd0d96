"""The fit of temperature and bias: the minimum that scipy finds, on any scale of logits, and never a reversed order."""

import pytest
import torch
from scipy.optimize import minimize

from metricfit.decide.calibration import fit_calibration


def rows(n, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    y = torch.multinomial(torch.softmax(true + torch.arange(classes), 1), 1, generator=generator).squeeze(1)
    weight = torch.rand(n, generator=generator, dtype=torch.float64) + 0.1
    logits = 3 * true if classes > 2 else 3 * (true[:, 1:] - true[:, :1])
    return logits, y, weight


def smoothed_cross_entropy(logits, y, weight):
    """Written again, row by row: Platt's targets, and the weighted mean of the cross-entropy."""
    scores = logits if logits.shape[1] > 1 else torch.cat([torch.zeros_like(logits), logits], 1)
    classes = scores.shape[1]
    w = weight / weight.mean()
    total = 0.0
    for row, label, row_weight in zip(torch.log_softmax(scores, 1), y.tolist(), w, strict=True):
        same = float(w[y == label].sum())
        target = torch.full((classes,), 1 / (same + classes), dtype=torch.float64)
        target[label] = (same + 1) / (same + classes)
        total -= float(row_weight * (target @ row))
    return total / len(y)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_minimum_is_that_of_scipy(classes):
    logits, y, weight = rows(80, classes, seed=classes)

    def loss(parameters):
        slope, *bias = parameters
        return smoothed_cross_entropy(slope * logits + torch.tensor(bias, dtype=torch.float64), y, weight)

    start = [1.0] + [0.0] * logits.shape[1]
    lowest = minimize(loss, start, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-8}).fun
    found = fit_calibration(logits, y, weight)
    assert smoothed_cross_entropy(found(logits), y, weight) == pytest.approx(lowest, abs=1e-8)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("scale", "shift"), [(1e-9, 0.0), (1e9, 0.0), (1e3, 1e5), (1e-3, -50.0)])
def test_probabilities_do_not_depend_on_the_scale_of_the_logits(classes, scale, shift):
    logits, y, weight = rows(200, classes, seed=0)
    to_probabilities = torch.sigmoid if classes == 2 else torch.nn.Softmax(dim=1)
    expected = to_probabilities(fit_calibration(logits, y, weight)(logits))
    rescaled = scale * logits + shift
    found = to_probabilities(fit_calibration(rescaled, y, weight)(rescaled))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_order_of_reversed_logits_is_kept_and_they_are_nearly_constant(classes):
    logits, y, _ = rows(400, classes, seed=1)
    calibration = fit_calibration(-logits, y, None)
    assert calibration.temperature > 1000
    calibrated = calibration(-logits)
    assert float(calibrated.std(0).max()) < 1e-3
    probabilities = torch.sigmoid(calibrated) if classes == 2 else torch.softmax(calibrated, 1)[:, 1:2]
    assert float(probabilities.mean()) == pytest.approx(float((y == 1).double().mean()), abs=0.01)


@pytest.mark.parametrize("constant", [0.0, 2.0, -1e6])
def test_constant_logits_become_the_prior(constant):
    y = (torch.arange(50) < 10).long()
    logits = torch.full((50, 1), constant, dtype=torch.float64)
    calibration = fit_calibration(logits, y, None)
    assert calibration.temperature == pytest.approx(1.0)
    assert float(torch.sigmoid(calibration(logits))[0]) == pytest.approx((10 * 11 / 12 + 40 / 42) / 50, abs=1e-5)
