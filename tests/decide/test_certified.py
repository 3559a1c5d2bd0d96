"""Certified thresholds: against a naive twin, how often they fail where the truth is known, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, norm

from metricfit.decide import best_decision
from metricfit.decide.bounds import check_exact
from metricfit.decide.certified import LEARNING_SHARE, certify_thresholds, check_guarantee
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.rules import Goal, Guarantee
from metricfit.errors import InvalidValueError
from metricfit.metrics import f1, parse_requirement, precision, recall, selection_rate, specificity
from metricfit.metrics.feasibility import InfeasibleError

SHIFT = 2.0


def sample(seed, n=300, share=0.3, decimals=None):
    rng = np.random.default_rng((seed, 7))
    y = (rng.random(n) < share).astype(int)
    z = rng.normal(size=n) + SHIFT * y
    return z if decimals is None else z.round(decimals), y


def required(*texts):
    return [parse_requirement(text) for text in texts]


def naive_p(requirement, z, y, threshold):
    """The p-value of one requirement at one threshold, row by row."""
    decided = [score >= threshold for score in z]
    rows = list(zip(y, decided, strict=True))
    trials, success = {
        "recall": ([d for label, d in rows if label], True),
        "specificity": ([d for label, d in rows if not label], False),
        "selection_rate": ([d for _, d in rows], True),
        "precision": ([label == 1 for label, d in rows if d], True),
        "npv": ([label == 0 for label, d in rows if not d], True),
        "accuracy": ([label == d for label, d in rows], True),
    }[requirement.metric.base_name]
    if not trials:
        return 1.0
    k = sum(trial == success for trial in trials)
    return binomtest(k, len(trials), requirement.bound, "greater" if requirement.sense == ">=" else "less").pvalue


def naive_certified(requirements, z, y, thresholds, alpha):
    """Test in this order, up to the first failure."""
    certified = set()
    for threshold in thresholds:
        if max(naive_p(requirement, z, y, threshold) for requirement in requirements) > alpha:
            break
        certified.add(threshold)
    return certified


def certified_set(z, y, *texts, confidence=0.9, metric=f1):
    falling = [float("inf"), *sorted(set(z.tolist()), reverse=True)]
    result = certify_thresholds(z, y, Goal(metric, required(*texts), guarantee=Guarantee(confidence)))
    return {t for t, allowed in zip(falling, result.allowed.tolist(), strict=True) if allowed}, result


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize(
    ("texts", "start"),
    [
        (["recall >= 0.8"], "lowest"),
        (["recall >= 0.7", "selection_rate >= 0.3"], "lowest"),
        (["specificity >= 0.6"], "highest"),
        (["selection_rate <= 0.5", "specificity >= 0.5"], "highest"),
    ],
)
def test_requirements_of_one_end_are_tested_from_there_at_the_whole_level(texts, start, decimals):
    z, y = sample(1, 90, decimals=decimals)
    rising = [*sorted(set(z.tolist())), float("inf")]
    order = rising if start == "lowest" else rising[::-1]
    expected = naive_certified(required(*texts), z.tolist(), y.tolist(), order, 0.1)
    found, result = certified_set(z, y, *texts)
    assert result.feasible
    assert 2 < len(found) < len(rising)
    assert found == expected


def test_requirements_of_both_ends_have_half_of_alpha_each():
    z, y = sample(2, 120)
    rising = [*sorted(set(z.tolist())), float("inf")]
    from_below = naive_certified(required("recall >= 0.6"), z.tolist(), y.tolist(), rising, 0.05)
    from_above = naive_certified(required("selection_rate <= 0.6"), z.tolist(), y.tolist(), rising[::-1], 0.05)
    found, result = certified_set(z, y, "recall >= 0.6", "selection_rate <= 0.6")
    assert result.feasible
    assert found == from_below & from_above


@pytest.mark.parametrize("metric", [recall, specificity])
@pytest.mark.parametrize("text", ["precision >= 0.6", "npv >= 0.6", "accuracy >= 0.6"])
def test_other_requirements_are_tested_along_one_path_on_the_rows_that_did_not_choose_it(text, metric):
    z, y = sample(3, 150)
    _, result = certified_set(z, y, text, metric=metric)
    assert result.feasible
    tested = int(result.tested.n.max())
    assert tested == len(y) - round(LEARNING_SHARE * len(y))
    drawn = np.random.default_rng((0, 1_934)).permutation(len(y))[: len(y) - tested]
    others = np.setdiff1d(np.arange(len(y)), drawn)
    scores, labels = z[others].tolist(), y[others].tolist()
    falling = [float("inf"), *sorted(set(z.tolist()), reverse=True)]
    p = np.array([naive_p(required(text)[0], scores, labels, t) for t in falling])
    np.testing.assert_allclose(result.p[0], p, rtol=1e-9)
    places = np.flatnonzero(result.allowed)
    assert (p[places] <= 0.1).all()
    assert (np.diff(places) == 1).all()  # one path without gaps, which goes on up to the first failure
    before, after = places[0] - 1, places[-1] + 1
    assert before < 0 or after == len(p) or max(p[before], p[after]) > 0.1


def truth(threshold, share):
    tp, fp = share * norm.sf(threshold - SHIFT), (1 - share) * norm.sf(threshold)
    return {
        "recall": tp / share,
        "selection_rate": tp + fp,
        "precision": tp / (tp + fp),
        "npv": (1 - share - fp) / (1 - tp - fp),
        "accuracy": tp + 1 - share - fp,
    }


@pytest.mark.parametrize(
    ("texts", "metric"),
    [
        (["recall >= 0.8"], precision),
        (["recall >= 0.6", "selection_rate <= 0.5"], f1),
        (["precision >= 0.6"], recall),
        (["npv >= 0.85"], specificity),
        (["precision >= 0.5", "recall >= 0.5"], f1),
        (["accuracy >= 0.75"], selection_rate),
    ],
)
def test_requirements_fail_on_new_rows_at_most_as_often_as_stated(texts, metric):
    """With 150 rows, alpha = 0.2 and 200 samples; an uncertified choice fails about half of the time."""
    runs, alpha, share = 200, 0.2, 0.3
    requirements, failures, certified = required(*texts), 0, 0
    for seed in range(runs):
        z, y = sample(seed, 150)
        falling = np.append(np.inf, np.sort(z)[::-1])
        result = certify_thresholds(z, y, Goal(metric, requirements, guarantee=Guarantee(1 - alpha, seed)))
        if result.feasible:
            certified += 1
            values = truth(falling[result.allowed & np.isfinite(falling)], share)
            failures += any(  # all certified thresholds must hold together, whichever is chosen
                bool(((values[item.metric.name] - item.bound) * (1 if item.sense == ">=" else -1) < 0).any())
                for item in requirements
            )
    assert certified > runs / 2
    assert failures / runs <= alpha + 2 * (alpha * (1 - alpha) / runs) ** 0.5
    assert failures > 0


def test_a_single_monotone_requirement_uses_nearly_all_of_alpha():
    runs, failures = 600, 0
    for seed in range(runs):
        z, y = sample(seed, 400)
        result = certify_thresholds(z, y, Goal(f1, required("recall >= 0.8"), guarantee=Guarantee(0.8)))
        highest = np.sort(z)[::-1][int(result.allowed.argmax()) - 1]
        failures += truth(float(highest), 0.3)["recall"] < 0.8
    assert 0.13 < failures / runs < 0.2 + 2 * (0.16 / runs) ** 0.5


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
def test_the_best_certified_threshold_is_chosen_by_the_rule(rule):
    z, y = sample(5, 400)
    decision = best_decision(z, y, "precision", subject_to="recall >= 0.8", confidence=0.95, rule=rule)
    plain = best_decision(z, y, "precision", subject_to="recall >= 0.8", rule=rule)
    assert decision.evidence.confidence == 0.95
    assert plain.evidence.confidence is None
    assert decision.evidence.not_reachable is None
    assert decision.threshold < plain.threshold
    assert decision.evidence.requirements["recall >= 0.8"].met
    low, high = decision.interval
    assert low <= decision.threshold <= high
    if rule == "empirical":  # precision rises with the threshold here, so the best is the last that is certified
        found, _ = certified_set(z, y, "recall >= 0.8", confidence=0.95)
        values = {t: float(y[z >= t].mean()) for t in found}
        assert decision.evidence.value == pytest.approx(max(values.values()))


def test_a_decision_says_what_could_not_be_promised():
    z, y = sample(6, 200)
    decision = best_decision(z, y, "recall", subject_to="precision >= 0.94", confidence=0.95)
    assert decision.evidence.confidence is None
    assert not decision.evidence.requirements["precision >= 0.94"].met
    assert (
        "no threshold can be promised to give precision >= 0.94 at 95 % confidence" in decision.evidence.not_reachable
    )
    assert "precision is at least 0." in decision.evidence.not_reachable


def test_too_few_rows_are_an_error_before_anything_is_chosen():
    z, y = sample(7, 100)
    with pytest.raises(InfeasibleError, match=r"needs at least 299 positives; there are \d+; the highest recall"):
        best_decision(z, y, "f1", subject_to="recall >= 0.99", confidence=0.95)
    with pytest.raises(InfeasibleError, match=r"at 97.5 % confidence needs at least 36 positives"):
        check_guarantee(required("recall >= 0.9", "fpr <= 0.5"), np.array([1] * 30 + [0] * 90), 0.95)


def test_what_voids_the_bounds_is_refused():
    z, y = sample(8)
    settings = {"subject_to": "recall >= 0.8", "confidence": 0.9}
    with pytest.raises(InvalidValueError, match="weights void the exact bounds"):
        best_decision(z, y, "f1", weight=torch.rand(len(y)) + 0.1, **settings)
    with pytest.raises(InvalidValueError, match="confidence= is about requirements"):
        best_decision(z, y, "f1", confidence=0.9)
    with pytest.raises(InvalidValueError, match=r"f1 >= 0.5 cannot be guaranteed"):
        best_decision(z, y, "f1", subject_to="f1 >= 0.5", confidence=0.9)
    with pytest.raises(InvalidValueError, match="confidence= is about requirements"):
        best_decision(torch.randn(60, 3), torch.arange(60) % 3, "f1", confidence=0.9)


def test_other_class_shares_leave_rates_within_a_class_certified():
    z, y = sample(9)
    shifted = collect_held_out(z[:, None], y, None, None).with_class_shares(np.array([0.9, 0.1]))
    check_exact(required("recall >= 0.8", "fpr <= 0.3"), y, shifted.weight)
    with pytest.raises(InvalidValueError, match=r"precision >= 0.8 depends on the class shares"):
        check_exact(required("precision >= 0.8"), y, shifted.weight)
    weight = np.where(y == 1, 0.2, 3.0)
    weighted = best_decision(
        z, y, "precision", subject_to="recall >= 0.8", confidence=0.9, weight=weight, rule="empirical"
    )
    plain = best_decision(z, y, "precision", subject_to="recall >= 0.8", confidence=0.9, rule="empirical")
    assert weighted.threshold == plain.threshold
    assert weighted.evidence.confidence == 0.9


def test_out_of_fold_scores_are_certified_at_half_of_alpha_if_that_is_possible():
    rng = np.random.default_rng(3)
    y = (rng.random(600) < 0.3).astype(np.int64)
    z = rng.normal(size=600) + 2 * y
    for requirement in ("recall >= 0.8", "precision >= 0.6"):
        asked = required(requirement)
        half = certify_thresholds(z, y, Goal(f1, asked, guarantee=Guarantee(0.95)))
        out_of_fold = certify_thresholds(z, y, Goal(f1, asked, guarantee=Guarantee(0.9, out_of_fold=True)))
        whole = certify_thresholds(z, y, Goal(f1, asked, guarantee=Guarantee(0.9)))
        assert out_of_fold.allowed.tolist() == half.allowed.tolist() != whole.allowed.tolist()


def test_out_of_fold_scores_are_certified_at_the_whole_of_alpha_where_half_of_it_has_too_few_rows():
    y = np.repeat([0, 1], [40, 25])
    z, asked = np.arange(65.0), required("recall >= 0.9")  # 22 positives are needed at 90 %, 29 at 95 %
    assert not certify_thresholds(z, y, Goal(f1, asked, guarantee=Guarantee(0.95))).feasible
    assert certify_thresholds(z, y, Goal(f1, asked, guarantee=Guarantee(0.9, out_of_fold=True))).feasible
