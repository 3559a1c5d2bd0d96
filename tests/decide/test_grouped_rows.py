"""Requirements with a confidence on rows in groups: the confidence holds although the rows of a group are alike."""

import numpy as np
import pytest
from scipy.stats import norm

from metricfit.decide import best_decision
from metricfit.decide.bounds import draw_learning_rows, draw_one_per_group
from metricfit.decide.certified import choose_certified
from metricfit.decide.rules import Goal, Guarantee
from metricfit.metrics import get_metric, parse_requirement
from metricfit.metrics.feasibility import InfeasibleError

GROUPS, SIZE, PREVALENCE, SIGNAL, SHARED, OWN = 160, 8, 0.4, 2.0, 1.0, 0.3
CONFIDENCE, DRAWS = 0.9, 120


def visits(seed):
    """Visits of persons: the score of a visit is mostly that of the person, who is ill at all visits or at none."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(GROUPS), SIZE)
    ill = (rng.random(GROUPS) < PREVALENCE)[person]
    score = SIGNAL * ill + SHARED * rng.normal(size=GROUPS)[person] + OWN * rng.normal(size=len(person))
    return score - 1, ill.astype(int), person


def rates(threshold):
    """Return the recall and the precision in the population."""
    spread = np.hypot(SHARED, OWN)
    recall, alarms = (norm.sf((threshold + 1 - mean) / spread) for mean in (SIGNAL, 0.0))
    return {"recall": recall, "precision": recall * PREVALENCE / (recall * PREVALENCE + alarms * (1 - PREVALENCE))}


def failures(metric, name, bound, with_groups):
    """Return the share of draws whose threshold misses the bound in the population."""
    failed = []
    for seed in range(DRAWS):
        z, y, person = visits(seed)
        guarantee = Guarantee(CONFIDENCE, seed, groups=person if with_groups else None)
        required = [parse_requirement(f"{name} >= {bound}")]
        goal = Goal(get_metric(metric), required, rule="empirical", guarantee=guarantee)
        chosen = choose_certified(z, y, None, goal)
        failed.append(chosen.feasible and rates(chosen.threshold)[name] < bound)
    return float(np.mean(failed))


@pytest.mark.parametrize(("metric", "name", "bound"), [("precision", "recall", 0.8), ("recall", "precision", 0.7)])
def test_the_confidence_holds_for_groups_and_fails_for_rows(metric, name, bound):
    allowed = 1 - CONFIDENCE
    error = np.sqrt(allowed * CONFIDENCE / DRAWS)
    assert failures(metric, name, bound, with_groups=True) < allowed + 2 * error
    assert failures(metric, name, bound, with_groups=False) > allowed + 2 * error


def test_one_row_of_each_group_or_of_each_class_in_it_counts():
    groups, y = np.array(["a", "a", "a", "b", "b", "c"]), np.array([0, 0, 1, 1, 1, 0])
    for text, expected in (("recall >= 0.5", 4), ("precision >= 0.5", 3), ("accuracy >= 0.5", 3)):
        drawn = draw_one_per_group(groups, y, [parse_requirement(text)], seed=1)
        assert int(drawn.sum()) == expected
        assert set(groups[drawn]) == {"a", "b", "c"}
    assert draw_one_per_group(None, y, [], 0).all()


def test_whole_groups_choose_the_path():
    groups = np.arange(100) // 4
    learning = draw_learning_rows(groups, 100, 0.2, (0, 1))
    assert learning.sum() == 20
    assert not set(groups[learning]) & set(groups[~learning])


def test_groups_are_counted_before_anything_is_decided():
    z, y, person = visits(0)
    ill = int(y[::SIZE].sum())
    with pytest.raises(
        InfeasibleError, match=rf"at least 90 positives; there are {ill}.*Of each group, one row counts"
    ):
        best_decision(z, y, "precision", subject_to="recall >= 0.95", confidence=0.99, groups=person)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_classes_and_labels_in_groups_are_certified_too(kind):
    z, y, person = visits(3)
    if kind == "classes":
        third = (np.random.default_rng(0).random(GROUPS) < 0.3)[person]
        logits, target = np.stack([-z, z, 9.0 * third - 4], axis=1), np.where(third, 2, y)
        requirement = "recall[2] >= 0.6"
    else:
        logits, target, requirement = np.stack([z, -z], axis=1), np.stack([y, 1 - y], axis=1), "recall >= 0.6"
    decision = best_decision(logits, target, "f1", subject_to=requirement, confidence=0.8, groups=person)
    assert decision.evidence.certificate == "guaranteed"
