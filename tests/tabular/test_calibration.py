"""Probabilities from logits, against scikit-learn's Platt scaling and the truth."""

import numpy as np
import pytest
import torch
from sklearn.calibration import _SigmoidCalibration

from metricfit import MetricClassifier
from metricfit.decide.calibration import fit_calibration
from metricfit.tabular import Network


def test_two_classes_as_platt():
    rng = np.random.default_rng(0)
    z = rng.normal(size=500) * 3
    y = (rng.random(500) < 1 / (1 + np.exp(-0.5 * z + 1))).astype(int)
    calibration = fit_calibration(torch.from_numpy(z)[:, None], torch.from_numpy(y), None)
    twin = _SigmoidCalibration().fit(z, y)
    assert torch.sigmoid(calibration(torch.from_numpy(z)[:, None])).squeeze(1).numpy() == pytest.approx(
        twin.predict(z), abs=2e-4
    )


def test_several_classes_find_the_temperature_and_bias_that_made_them():
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    y = torch.multinomial(torch.softmax(true, 1), 1, generator=generator).squeeze(1)
    distorted = 3 * (true - torch.tensor([0.5, 0.0, -0.5]))
    calibration = fit_calibration(distorted, y, None)
    assert calibration.temperature == pytest.approx(3, rel=0.05)
    assert calibration.bias - calibration.bias[1] == pytest.approx([0.5, 0, -0.5], abs=0.08)


def test_weights_count_as_copies():
    z, y = torch.randn(60, 1, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2
    weight = 1.0 + torch.arange(60) % 3
    copies = weight.long()
    by_weight, by_copies = (
        fit_calibration(z, y, weight),
        fit_calibration(z.repeat_interleave(copies, 0), y.repeat_interleave(copies), None),
    )
    assert by_weight.temperature == pytest.approx(by_copies.temperature, rel=0.1)


def test_separable_scores_stay_finite():
    z = torch.linspace(-5, 5, 40)[:, None]
    calibration = fit_calibration(z, (z.squeeze(1) > 0).long(), None)
    assert np.isfinite(calibration.temperature)
    assert 0 < float(torch.sigmoid(calibration(z)).max()) < 1


def test_the_probabilities_of_a_metric_loss_are_right_on_average(quick):
    """F1's loss alone pushes scores up; calibrated, the mean probability is the share of positives."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = (rng.random(1500) < 1 / (1 + np.exp(3 - 1.5 * X[:, 0]))).astype(int)
    model = MetricClassifier(**{**quick, "models": [Network(kind="mlp", recipe="metric", epochs=10)]}).fit(
        X[:1000], y[:1000]
    )
    assert model.predict_proba(X[1000:])[:, 1].mean() == pytest.approx(y[1000:].mean(), abs=0.03)
