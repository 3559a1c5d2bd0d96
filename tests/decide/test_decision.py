"""Decision: from logits to labels and probabilities, for two classes, several classes and several labels."""

import pytest
import torch

from metricfit.decide import Decision, best_decision
from metricfit.decide.calibration import Calibration, fit_calibration


def test_thresholds_decide_label_by_label():
    decision = Decision(value=0.5, thresholds=torch.tensor([0.0, 2.0]))
    logits = torch.tensor([[0.0, 1.9], [-0.1, 2.0]])
    assert decision.decide(logits).tolist() == [[1, 0], [0, 1]]
    assert torch.allclose(decision.probabilities(logits), torch.sigmoid(logits).double())


def test_probabilities_of_two_classes_are_calibrated():
    decision = Decision(value=0.5, threshold=0.0, calibration=Calibration(2.0, torch.tensor([1.0])))
    logits = torch.tensor([-4.0, 0.0, 3.0])
    assert torch.allclose(decision.probabilities(logits[:, None]), torch.sigmoid(logits / 2 + 1).double())


def test_probabilities_of_several_classes_are_calibrated():
    bias = torch.tensor([0.3, -0.1, 0.0])
    decision = Decision(value=0.5, offsets=torch.zeros(3), calibration=Calibration(0.5, bias))
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(decision.probabilities(logits), torch.softmax(2 * logits + bias, 1).double())


@pytest.mark.parametrize("classes", [2, 3])
def test_best_decision_keeps_the_calibration_that_its_probabilities_need(classes):
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(200, 1 if classes == 2 else classes, generator=generator, dtype=torch.float64) + 2
    y = torch.randint(classes, (200,), generator=generator)
    calibrated = fit_calibration(logits, y, None)(logits)
    decision = best_decision(logits, y, "f1")
    expected = torch.sigmoid(calibrated).squeeze(1) if classes == 2 else torch.softmax(calibrated, 1)
    assert torch.allclose(decision.probabilities(logits), expected)
    assert best_decision(logits, y, "f1", calibrate=False).calibration is None
    assert best_decision(logits, y, "f1", rule="empirical").calibration is None


@pytest.mark.parametrize("parts", [{}, {"threshold": 0.0, "offsets": torch.zeros(3)}])
def test_a_decision_is_of_one_kind(parts):
    with pytest.raises(ValueError, match="one of"):
        Decision(value=0.5, **parts)
