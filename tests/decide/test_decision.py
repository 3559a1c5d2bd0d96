"""Decision: from logits to labels and probabilities, for two classes, several classes and several labels."""

import copy
import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from metricfit import TunedDecisionClassifier
from metricfit.decide import (
    Calibration,
    CostDecision,
    Decision,
    Evidence,
    LabelDecision,
    OffsetDecision,
    Referral,
    RowCostDecision,
    ThresholdDecision,
    TopLabelsDecision,
    best_decision,
)
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.decision import KINDS, in_their_kind, restore_decision
from metricfit.metrics.feasibility import RequirementValue


def test_thresholds_decide_label_by_label():
    decision = LabelDecision(torch.tensor([0.0, 2.0]))
    logits = torch.tensor([[0.0, 1.9], [-0.1, 2.0]])
    assert decision.decide(logits).tolist() == [[1, 0], [0, 1]]
    assert torch.allclose(decision.probabilities(logits), torch.sigmoid(logits).double())


def test_probabilities_of_two_classes_are_calibrated():
    decision = ThresholdDecision(0.0, calibration=Calibration(2.0, torch.tensor([1.0])))
    logits = torch.tensor([-4.0, 0.0, 3.0])
    assert torch.allclose(decision.probabilities(logits[:, None]), torch.sigmoid(logits / 2 + 1).double())


def test_probabilities_of_several_classes_are_calibrated():
    bias = torch.tensor([0.3, -0.1, 0.0])
    decision = OffsetDecision(torch.zeros(3), calibration=Calibration(0.5, bias))
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


EVIDENCE = Evidence(
    0.8,
    (0.7, math.inf),
    corrected_value=0.75,
    requirements={"recall >= 0.9": RequirementValue(0.91, True, 1.0)},
    not_reachable="no",
    confidence=0.9,
    out_of_fold=True,
)
CALIBRATION = Calibration(1 / 3, [0.1])
DECISIONS = [
    ThresholdDecision(0.1, (-math.inf, 0.3), Referral(-1.0, 0.5, 0.2), CALIBRATION, EVIDENCE),
    RowCostDecision(1 / 3, (0.1, 0.2), evidence=EVIDENCE),
    OffsetDecision([0.0, 0.1, -1 / 3], Calibration(2.0, [0.1, 0.2, 0.3]), EVIDENCE),
    CostDecision([0.0, 0.1, -1 / 3], [[0, 1, 4], [1, 0, 1], [4, 1, 0]], evidence=EVIDENCE),
    LabelDecision([0.1, math.inf], [[0, 1], [-math.inf, math.inf]], Calibration([1.0, 2.0], [0.1, 0.2]), EVIDENCE),
    TopLabelsDecision([1.0, 0.5, 1 / 3], [0.0, 0.1, -0.2], 2, Calibration([1.0] * 3, [0.1, 0.2, 0.3]), EVIDENCE),
]


def test_every_kind_is_here():
    assert {type(decision) for decision in DECISIONS} == set(KINDS.values())


@pytest.mark.parametrize("decision", DECISIONS, ids=list(KINDS))
def test_arrays_give_arrays_and_tensors_give_tensors(decision):
    logits = np.random.default_rng(0).normal(size=(20, decision.outputs))
    for method in (decision.margins, decision.decide, decision.probabilities, decision.referred):
        array, tensor = method(logits), method(torch.from_numpy(logits))
        assert isinstance(array, np.ndarray)
        assert torch.equal(tensor, torch.from_numpy(array))
    assert decision.describe()


@pytest.mark.parametrize("decision", DECISIONS, ids=list(KINDS))
def test_a_state_restores_the_decision_through_json(decision):
    again = restore_decision(json.loads(json.dumps(decision.state(), allow_nan=False)))
    assert again.state() == decision.state()
    logits = np.random.default_rng(0).normal(size=(20, decision.outputs))
    assert (again.margins(logits) == decision.margins(logits)).all()
    assert again.evidence == decision.evidence


@pytest.mark.parametrize("decision", DECISIONS, ids=list(KINDS))
def test_damaged_states_are_refused(decision):
    """Every number as NaN, text, null and a list, and every part left out."""
    state = decision.state()
    for place in _places(state):
        for wrong in (math.nan, "high", {}, [[]], 10**400):
            damaged = copy.deepcopy(state)
            part = damaged
            for key in place[:-1]:
                part = part[key]
            part[place[-1]] = wrong
            if (place[-1], wrong) in (("not_reachable", "high"), ("requirements", {})):
                continue
            with pytest.raises(ValueError, match="decision"):
                restore_decision(damaged)


def _places(part, place=()):
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        yield (*place, key)
        yield from _places(value, (*place, key))


@pytest.mark.parametrize("state", [None, [], {}, {"kind": "other"}, {"kind": "threshold"}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(ValueError, match=r"decision(\.kind|\.threshold)? must be"):
        restore_decision(state)


def test_numbers_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        ThresholdDecision(math.nan)
    with pytest.raises(ValueError, match="square"):
        CostDecision([0.0, 0.0], np.zeros((3, 3)))
    with pytest.raises(ValueError, match="intervals of 2 thresholds"):
        LabelDecision([0.0, 0.0], np.zeros((3, 2)))
    with pytest.raises(ValueError, match="must contain the threshold 2"):
        ThresholdDecision(2.0, referral=Referral(-1.0, 1.0, 0.1))


@pytest.mark.parametrize("decision", [each for each in DECISIONS if not isinstance(each, RowCostDecision)], ids=str)
def test_a_decision_about_raw_logits_makes_the_same_decisions(decision):
    calibration = Calibration(0.7, np.linspace(-0.5, 0.5, decision.outputs))
    raw = np.random.default_rng(0).normal(size=(50, decision.outputs))
    plain = replace(decision, calibration=None)
    assert (plain.before(calibration).decide(raw) == plain.decide(calibration(raw))).all()


@dataclass(frozen=True)
class BandDecision(Decision):
    """Positive between two logits: a kind of decision that this package does not have."""

    low: float
    high: float
    calibration: Calibration | None = None
    evidence: Evidence = EVIDENCE
    task = "binary"
    decided_by: ClassVar = {"low": 0, "high": 0}

    @in_their_kind
    def margins(self, logits):
        return np.minimum(logits - self.low, self.high - logits).reshape(-1)

    def describe(self, names=()):
        return "positive between two logits"

    def before(self, calibration):
        low, high = calibration.invert([self.low, self.high])
        return replace(self, low=low, high=high, calibration=calibration)

    def attributes(self, place):
        return {}


def test_a_new_kind_is_a_class_with_a_name(monkeypatch):
    """It decides, is saved and restored, and serves an estimator, without a change anywhere else."""
    monkeypatch.setitem(KINDS, "band", BandDecision)
    band = BandDecision(-1.0, 2.0)
    assert band.decide([-2.0, 0.0, 3.0]).tolist() == [0, 1, 0]
    assert band.outputs == 1
    again = restore_decision(json.loads(json.dumps(band.state(), allow_nan=False)))
    assert again.state() == band.state()
    x = np.random.default_rng(0).normal(size=(80, 1))
    model = TunedDecisionClassifier(LogisticRegression(), "f1").fit(x, x[:, 0] > 0)
    model.chosen_ = replace(model.chosen_, decision=band)
    assert (model.predict(x) == (np.abs(model._logits(x)[:, 0] - 0.5) <= 1.5)).all()
