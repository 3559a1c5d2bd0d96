"""Offsets under requirements against a grid of offsets, whose decisions scikit-learn judges."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score, precision_score, recall_score

from metricfit import metrics, parse_requirement
from metricfit.decide.calibration import softmax
from metricfit.decide.offsets import PenalisedProblem, RequirementExcess, offset_problem, search_required


def rows(seed=0, n=90):
    generator = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), n, True, generator=generator)
    logits = torch.randn(n, 3, generator=generator).double() + 1.5 * torch.nn.functional.one_hot(y, 3)
    return logits.numpy(), y.numpy()


def of_class(score, k):
    return lambda y, decided: score(y, decided, labels=[k], average=None, zero_division=0)[0]


def macro_f1(y, decided):
    return f1_score(y, decided, average="macro")


def squared_kappa(y, decided):
    return cohen_kappa_score(y, decided, weights="quadratic")


CASES = [
    (["recall[2] >= 0.8"], [(of_class(recall_score, 2), 0.8)]),
    (
        ["precision[2] >= 0.7", "recall[0] >= 0.6"],
        [(of_class(precision_score, 2), 0.7), (of_class(recall_score, 0), 0.6)],
    ),
    (["accuracy >= 0.6", "weighted_kappa(power=2) >= 0.4"], [(accuracy_score, 0.6), (squared_kappa, 0.4)]),
]


@pytest.mark.parametrize(("texts", "scores"), CASES)
def test_the_best_offsets_that_meet_the_requirements(texts, scores):
    z, y = rows()
    observed = offset_problem(z, y, None, metrics.f1, "macro", rule="empirical")
    constraints = [RequirementExcess(parse_requirement(text)) for text in texts]
    found = search_required(PenalisedProblem(observed, observed, constraints), 10)
    decided = (z + found.offsets).argmax(1)
    assert found.violation == 0
    assert found.value == pytest.approx(macro_f1(y, decided))
    assert all(score(y, decided) >= bound for score, bound in scores)
    places = np.linspace(-3, 3, 15)
    grid = ((z + np.array([0.0, a, b])).argmax(1) for a, b in itertools.product(places, places))
    distinct = (np.array(each) for each in {tuple(decided.tolist()) for decided in grid})
    allowed = [each for each in distinct if all(score(y, each) >= bound for score, bound in scores)]
    assert found.value >= max(macro_f1(y, each) for each in allowed) - 1e-9


def test_requirements_that_cannot_be_met_come_as_near_as_the_grid():
    z, y = rows(1)
    observed = offset_problem(z, y, None, metrics.f1, "macro", rule="empirical")
    constraints = [RequirementExcess(metrics.recall[k] >= 0.95) for k in range(3)]
    problem = PenalisedProblem(observed, observed, constraints)
    found = search_required(problem, 10)
    places = np.linspace(-3, 3, 13)
    nearest = min(problem.judge(np.array([0.0, a, b]))[0] for a, b in itertools.product(places, places))
    assert 0 < found.violation <= nearest + 1e-9


def test_the_plug_in_rule_meets_them_on_labels_and_on_expected_counts():
    z, y = rows(2, n=200)
    z = 1.5 * z + np.log([0.5, 0.3, 0.2])
    base, observed = (offset_problem(z, y, None, metrics.f1, "macro", rule=rule) for rule in ("plugin", "empirical"))
    constraints = [RequirementExcess(metrics.recall[2] >= 0.85)]
    found = search_required(PenalisedProblem(base, observed, constraints, on_both=True), 10)
    decided = (z + found.offsets).argmax(1)
    assert of_class(recall_score, 2)(y, decided) >= 0.85
    of_class_2 = softmax(z)[:, 2]
    assert float(of_class_2[decided == 2].sum() / of_class_2.sum()) >= 0.85
