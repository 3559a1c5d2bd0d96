"""Decisions about several classes under requirements, with and without a confidence."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import precision_score, recall_score

from metricfit.decide import best_decision
from metricfit.decide import certified as certified_module
from metricfit.decide.certified import LEARNING
from metricfit.decide.rules import Goal
from metricfit.metrics import f1, parse_requirement
from metricfit.metrics.feasibility import InfeasibleError


def rows(n=400, seed=0, separation=1.5):
    generator = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), n, True, generator=generator)
    return torch.randn(n, 3, generator=generator).double() + separation * torch.nn.functional.one_hot(y, 3), y


def test_requirements_of_every_class_are_met_and_reported():
    z, y = rows()
    decision = best_decision(z, y, "f1", subject_to=["recall >= 0.6", "precision[2] >= 0.6"])
    decided = decision.decide(z)
    recalls, precisions = (score(y, decided, average=None) for score in (recall_score, precision_score))
    assert list(decision.evidence.requirements) == [
        "recall[0] >= 0.6",
        "recall[1] >= 0.6",
        "recall[2] >= 0.6",
        "precision[2] >= 0.6",
    ]
    found = [result.value for result in decision.evidence.requirements.values()]
    assert found == pytest.approx([*recalls, precisions[2]])
    assert all(result.met for result in decision.evidence.requirements.values())
    assert decision.evidence.requirements["recall[1] >= 0.6"].reachable == 1
    assert decision.evidence.not_reachable is None
    low, high = decision.evidence.corrected_interval
    assert low < decision.evidence.corrected_value < high
    assert decision.evidence.corrected_value == pytest.approx(decision.evidence.value)


def test_what_cannot_be_met_says_what_can():
    z, y = rows(150, separation=0.5)
    decision = best_decision(z, y, "f1", subject_to="recall >= 0.9", rule="empirical")
    assert not any(result.met for result in list(decision.evidence.requirements.values())[1:])
    assert decision.evidence.not_reachable.startswith(
        "no offsets of the classes were found that give recall[0] >= 0.9 and "
    )
    assert "each alone, recall[0] can be as high as 1 and" in decision.evidence.not_reachable


@pytest.fixture(scope="module")
def certified():
    z, y = rows(700)
    requirements = ["recall[2] >= 0.6", "precision[1] >= 0.5"]
    return z, y, best_decision(z, y, "f1", subject_to=requirements, confidence=0.9, rule="empirical", seed=3)


def test_certified_offsets_pass_exact_tests_on_rows_that_did_not_choose_them(certified):
    z, y, decision = certified
    assert decision.evidence.confidence == 0.9
    drawn = np.random.default_rng((3, LEARNING)).permutation(len(y))
    testing = drawn[round(certified_module.LEARNING_SHARE * len(y)) :]
    decided, target = decision.decide(z[testing]).numpy(), y[testing].numpy()
    tests = [((target == 2), (decided == 2), 0.6), ((decided == 1), (target == 1), 0.5)]
    for trials, successes, bound in tests:
        found = binomtest(int((trials & successes).sum()), int(trials.sum()), bound, alternative="greater")
        assert found.pvalue <= 0.1


def test_the_path_does_not_depend_on_a_calibration_of_all_rows(monkeypatch):
    monkeypatch.setattr(certified_module, "MARGINS", (0.5, -1.0))
    z, y = rows(80)
    requirements = [parse_requirement("recall[2] >= 0.6")]
    z, y = z.numpy(), y.numpy()
    shifted = 0.5 * z + np.array([0.3, -1.0, 2.0])
    paths = [certified_module._choose_offsets(each, y, Goal(f1, requirements), 300, 0.1) for each in (z, shifted)]
    decided = [np.stack([(each + at).argmax(1) for at in path]) for each, path in zip((z, shifted), paths, strict=True)]
    assert (decided[0] == decided[1]).mean() > 0.99


def test_too_few_rows_of_a_class_are_reported():
    z, y = rows(120)
    with pytest.raises(InfeasibleError, match=r"recall\[2\] >= 0.95 at 90 % confidence needs at least 45 positives"):
        best_decision(z, y, "f1", subject_to="recall[2] >= 0.95", confidence=0.9)
    with pytest.raises(ValueError, match=r"f1\[0\] >= 0.5 cannot be guaranteed"):
        best_decision(z, y, "f1", subject_to="f1 >= 0.5", confidence=0.9)


def test_a_promise_that_cannot_be_made_is_not_made():
    z, y = rows(300, separation=0.3)
    decision = best_decision(z, y, "f1", subject_to="precision[2] >= 0.8", confidence=0.9)
    assert decision.evidence.confidence is None
    assert (
        "no offsets of the classes can be promised to give precision[2] >= 0.8 at 90 %"
        in decision.evidence.not_reachable
    )
    assert not decision.evidence.requirements["precision[2] >= 0.8"].met
