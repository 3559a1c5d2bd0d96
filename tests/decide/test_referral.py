"""Regions of scores that are referred to a person, against a search through all pairs of cut-offs."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from metricfit import metrics, parse_requirement
from metricfit.decide import DecisionModule, OffsetDecision, Referral, ThresholdDecision, best_referral, refer
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.decision import restore_decision
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.optimism import counts_of_matrix
from metricfit.decide.refer import check_refer_label, search_region
from metricfit.decide.rules import Goal, Guarantee
from metricfit.metrics.feasibility import InfeasibleError

SCORES = {"f1": f1_score, "accuracy": accuracy_score, "precision": precision_score, "recall": recall_score}


def draw(rows, seed=0, decimals=None):
    rng = np.random.default_rng(seed)
    z = rng.normal(-1, 1.5, rows)
    z = z if decimals is None else z.round(decimals)
    return z, (rng.random(rows) < 1 / (1 + np.exp(-z))).astype(int)


def value_of(name, y, z, low, high, weight=None):
    """Let scikit-learn judge the rows outside the region."""
    kept = (z < low) | (z >= high)
    w = None if weight is None else weight[kept]
    if not kept.any():
        return 0.0
    called = (z[kept] >= high).astype(int)
    extra = {} if name == "accuracy" else {"zero_division": 0}
    return float(SCORES[name](y[kept], called, sample_weight=w, **extra))


def all_regions(z, threshold):
    cuts = np.unique(z)
    for high in [threshold, np.inf, *cuts[cuts > threshold]]:
        for low in [threshold, *cuts[cuts < threshold]]:
            yield low, high


def share_of(z, low, high, weight=None):
    w = np.ones(len(z)) if weight is None else weight
    return float(w[(z >= low) & (z < high)].sum() / w.sum())


def search(z, y, metric, threshold, requirements=(), weight=None, **settings):
    w = None if weight is None else torch.from_numpy(weight)
    parsed = [parse_requirement(text) for text in requirements]
    return search_region(
        torch.from_numpy(z), torch.from_numpy(y), w, metrics.get_metric(metric), threshold, parsed, **settings
    )


@pytest.mark.parametrize("name", ["f1", "accuracy", "recall"])
@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_best_region_of_a_share_is_that_of_brute_force(name, decimals, weighted):
    z, y = draw(50, seed=3, decimals=decimals)
    weight = np.random.default_rng(1).integers(1, 4, 50).astype(float) if weighted else None
    for max_share in (0.0, 0.1, 0.3):
        region = search(z, y, name, -0.25, weight=weight, max_share=max_share, rule="empirical")
        best = max(
            value_of(name, y, z, low, high, weight)
            for low, high in all_regions(z, -0.25)
            if share_of(z, low, high, weight) <= max_share + 1e-12
        )
        assert region.value == pytest.approx(best)
        assert region.value == pytest.approx(value_of(name, y, z, region.low, region.high, weight))
        assert region.share == pytest.approx(share_of(z, region.low, region.high, weight))
        assert region.share <= max_share + 1e-12
        assert region.low <= -0.25 <= region.high


@pytest.mark.parametrize("texts", [["precision >= 0.8"], ["recall >= 0.8"], ["precision >= 0.7", "recall >= 0.9"]])
def test_the_smallest_share_for_requirements_is_that_of_brute_force(texts):
    z, y = draw(60, seed=5)
    region = search(z, y, "f1", -0.25, texts, max_share=None, rule="empirical")
    wanted = [(text.split()[0], float(text.split()[2])) for text in texts]
    smallest = min(
        share_of(z, low, high)
        for low, high in all_regions(z, -0.25)
        if all(value_of(name, y, z, low, high) >= bound - 1e-12 for name, bound in wanted)
    )
    assert region.share == pytest.approx(smallest)
    assert region.feasible
    assert all(region.requirements[text].met for text in texts)


def test_requirements_that_no_small_region_meets_are_missed_by_as_little_as_possible():
    z, y = draw(60, seed=5)
    region = search(z, y, "f1", -0.25, ["precision >= 1"], max_share=0.05, rule="empirical")
    best = max(
        value_of("precision", y, z, low, high)
        for low, high in all_regions(z, -0.25)
        if share_of(z, low, high) <= 0.05 + 1e-12
    )
    assert not region.feasible
    assert region.requirements["precision >= 1"].value == pytest.approx(best)


def test_many_rows_are_searched_in_two_steps(monkeypatch):
    z, y = draw(800, seed=2)
    exact = search(z, y, "f1", -0.5, max_share=0.2, rule="plugin")
    monkeypatch.setattr(refer, "CUTOFFS", 20)
    coarse = search(z, y, "f1", -0.5, max_share=0.2, rule="plugin")
    assert coarse.share <= 0.2 + 1e-12
    assert coarse.value == pytest.approx(exact.value, abs=0.02)
    smallest = search(z, y, "f1", -0.5, ["precision >= 0.8"], max_share=None, rule="plugin")
    monkeypatch.setattr(refer, "CUTOFFS", 2000)
    assert smallest.share == pytest.approx(
        search(z, y, "f1", -0.5, ["precision >= 0.8"], max_share=None, rule="plugin").share, abs=0.02
    )


def test_the_plugin_rule_takes_the_region_with_the_best_expected_value():
    z, y = draw(40, seed=1)
    region = search(z, y, "accuracy", 0.0, max_share=0.25, rule="plugin")
    p = 1 / (1 + np.exp(-z))

    def expected(low, high):
        above, below = z >= high, z < low
        return (p[above].sum() + (1 - p)[below].sum()) / max(1, above.sum() + below.sum())

    best = max(expected(low, high) for low, high in all_regions(z, 0.0) if share_of(z, low, high) <= 0.25)
    assert expected(region.low, region.high) == pytest.approx(best)
    assert region.share == pytest.approx(0.25)  # each row near the threshold is more uncertain than the others


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
def test_best_referral_is_about_logits_as_they_were_given(rule):
    z, y = draw(400)
    raw = 3 * z + 2
    decision = best_referral(raw, y, "f1", max_share=0.1, rule=rule)
    low, high = decision.referral.low, decision.referral.high
    assert low <= decision.threshold <= high
    referred = decision.referred(torch.from_numpy(raw)).numpy()
    assert referred.mean() == pytest.approx(decision.referral.share)
    assert 0 < decision.referral.share <= 0.1
    called = decision.decide(torch.from_numpy(raw)).numpy()
    assert decision.evidence.value == pytest.approx(f1_score(y[~referred], called[~referred]))
    assert (
        decision.evidence.corrected_interval[0]
        < decision.evidence.corrected_value
        < decision.evidence.corrected_interval[1]
    )
    assert decision.evidence.value_interval[0] < decision.evidence.value < decision.evidence.value_interval[1]


def test_rows_that_are_decided_without_an_error_leave_the_value_uncertain():
    z = np.concatenate([np.linspace(-4, -1, 40), np.linspace(1, 4, 40)])
    decision = best_referral(z, (z > 0).astype(int), "recall", max_share=0.1, calibrate=False)
    assert decision.evidence.value == 1.0
    assert 0.5 < decision.evidence.corrected_interval[0] < 1.0


def test_a_requirement_that_holds_without_a_region_refers_no_row():
    z, y = draw(300)
    decision = best_referral(z, y, "f1", subject_to="precision >= 0.01")
    assert decision.referral is None
    assert decision.referral is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "max_share=0.05, or what"),
        ({"max_share": 5}, "did you mean 0.05"),
        ({"max_share": -0.1}, "at least 0"),
        ({"max_share": "many"}, "max_share is a share"),
        ({"max_share": True}, "max_share is a share"),
    ],
)
def test_wrong_shares_are_refused(settings, message):
    z, y = draw(30)
    with pytest.raises((TypeError, ValueError), match=message):
        best_referral(z, y, "f1", **settings)


def test_rows_of_one_class_and_groups_of_other_rows_are_refused():
    for target, weight in (([0, 0, 0], None), ([1, 0, 0], [0, 1, 1])):
        with pytest.raises(ValueError, match="one class, 0"):
            best_referral([0.1, 0.2, 0.3], target, "f1", max_share=0.1, weight=weight)
    with pytest.raises(ValueError, match="one group per row, 3"):
        best_referral([0.1, 0.2, 0.3], [0, 1, 0], "f1", max_share=0.1, groups=[1, 2])


def test_the_interval_of_decided_rows_counts_that_their_class_balance_is_a_sample():
    z = torch.linspace(-3, 3, 1000, dtype=torch.float64)
    y = torch.arange(1000) % 20 == 0  # scores say nothing, so that nearly every row is called negative
    low, high = best_referral(z, y.long(), "accuracy", max_share=0.1).evidence.value_interval
    assert high - low > 0.7 * 2 * 1.96 * (0.95 * 0.05 / 900) ** 0.5


def test_labels_costs_in_columns_and_modules_are_refused():
    with pytest.raises(ValueError, match="several labels are decided"):
        best_referral(torch.zeros(6, 3), torch.zeros(6, 3).long(), "f1", max_share=0.1)
    with pytest.raises(ValueError, match="whole confusion matrix"):
        best_referral(torch.randn(6, 3), torch.arange(6) % 3, "weighted_kappa", max_share=0.1)
    with pytest.raises(ValueError, match="threshold of its own"):
        best_referral([0.1, 0.9], [0, 1], "cost(fp=1, fn='amount')", max_share=0.1)
    decision = ThresholdDecision(0.0, referral=Referral(-1.0, 1.0, 0.1))
    with pytest.raises(ValueError, match="decides every row"):
        DecisionModule(torch.nn.Identity(), decision)
    DecisionModule(torch.nn.Identity(), dataclasses.replace(decision, referral=None))


@pytest.mark.parametrize("label", ["yes", 1.5, None, True])
def test_labels_of_referred_rows_are_no_classes(label):
    with pytest.raises((TypeError, ValueError), match="label of referred rows"):
        check_refer_label(label, np.array(["no", "yes"]))


def draw_classes(n, shares, signal, seed):
    """Draw calibrated logits and classes: of two the log odds, of several one normal column each."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), n, p=shares)
    if len(shares) == 2:
        z = rng.normal(size=n) + signal * y
        return (signal * z - signal**2 / 2 + np.log(shares[1] / shares[0]))[:, None], y
    x = rng.normal(size=(n, len(shares)))
    x[np.arange(n), y] += signal
    return signal * x + np.log(shares), y


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("name", ["f1", "accuracy", "recall"])
def test_the_best_lead_of_several_classes_is_that_of_brute_force(name, average):
    z, y = draw_classes(80, [0.5, 0.3, 0.2], 1.5, 0)
    weight = np.random.default_rng(1).integers(1, 4, 80).astype(float)
    offsets = np.array([0.0, 0.4, -0.2])
    rows = collect_held_out(z, y, weight, None)
    goal = Goal(metrics.get_metric(name), average=average, rule="empirical")
    region = refer.search_lead(rows, goal, OffsetDecision(offsets), weight, max_share=0.3)
    best = np.sort(z + offsets, axis=1)
    lead, decided, found = best[:, -1] - best[:, -2], (z + offsets).argmax(1), []
    for cut in [0.0, *lead + 1e-9]:
        kept = lead >= cut
        if weight[~kept].sum() / weight.sum() <= 0.3:
            extra = {} if name == "accuracy" else {"average": average, "zero_division": 0}
            found.append(SCORES[name](y[kept], decided[kept], sample_weight=weight[kept], **extra))
    assert region.value == pytest.approx(max(found))
    kept = lead >= region.high
    assert region.share == pytest.approx(weight[~kept].sum() / weight.sum())


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
def test_several_classes_are_referred_about_logits_as_they_were_given(rule):
    z, y = draw_classes(500, [0.5, 0.3, 0.2], 1.5, 0)
    raw = 2 * z + [0.3, 0.0, -1.0]
    decision = best_referral(raw, y, "f1", max_share=0.2, rule=rule)
    referred = decision.referred(raw)
    assert referred.mean() == pytest.approx(decision.referral.share)
    assert 0 < decision.referral.share <= 0.2
    called = decision.decide(raw)
    assert (decision.decide_or_refer(raw) == np.where(referred, -1, called)).all()
    value = f1_score(y[~referred], called[~referred], average="macro")
    assert decision.evidence.value == pytest.approx(value)
    assert value > f1_score(y, called, average="macro")
    assert restore_decision(decision.state()).referral == decision.referral


def test_several_classes_meet_requirements_by_the_smallest_share():
    z, y = draw_classes(500, [0.5, 0.3, 0.2], 1.5, 0)
    decision = best_referral(z, y, "f1", subject_to=["precision[2] >= 0.85", "accuracy >= 0.8"], rule="empirical")
    assert set(decision.evidence.requirements) == {"precision[2] >= 0.85", "accuracy >= 0.8"}
    assert all(result.met for result in decision.evidence.requirements.values())
    smaller = best_referral(z, y, "f1", subject_to="accuracy >= 0.8", rule="empirical")
    assert 0 < smaller.referral.share < decision.referral.share


#: The requirements, the number of rows, the shares of the classes, and the largest share to refer.
PROMISES = [
    (["precision >= 0.8", "fnr <= 0.1"], 1000, [0.7, 0.3], None),
    (["fnr <= 0.1"], 500, [0.8, 0.2], 0.5),
    (["accuracy >= 0.9"], 600, [0.5, 0.3, 0.2], None),
    (["recall[2] >= 0.85", "precision[2] >= 0.85"], 1000, [0.5, 0.3, 0.2], None),
    (["fnr <= 0.25"], 1500, [0.5, 0.3, 0.2], 0.3),
]


@pytest.mark.parametrize(("texts", "rows", "shares", "max_share"), PROMISES)
def test_requirements_of_the_decided_rows_fail_as_rarely_as_promised(texts, rows, shares, max_share):
    draws, failed, found = 120, 0, 0
    requirements = class_requirements([parse_requirement(text) for text in texts], len(shares))
    z, y = draw_classes(100_000, shares, 2.0, 10**6)
    for seed in range(draws):
        held_out = collect_held_out(*draw_classes(rows, shares, 2.0, seed), None, None)
        goal = Goal(metrics.get_metric("f1"), requirements, seed=seed, guarantee=Guarantee(0.9, seed))
        decision, region, not_reachable = refer.certify_region(held_out, goal, max_share)
        if not_reachable is not None:
            continue
        found += 1
        assert region.share <= (max_share or 1.0) + 1e-12
        called = region.within(decision).decide_or_refer(z)
        matrix = np.array([[((y == i) & (called == j)).sum() for j in range(len(shares))] for i in range(len(shares))])
        counts = counts_of_matrix(matrix.astype(float))
        failed += not all(bool(np.all(each.holds(counts))) for each in requirements)
    assert found > 0.5 * draws
    # 0.1 and three standard errors; it was 0 to 0.06
    assert failed / draws <= 0.1 + 3 * (0.09 / draws) ** 0.5


def test_a_confidence_says_what_it_promises():
    z, y = draw_classes(1000, [0.7, 0.3], 2.0, 0)
    sure = best_referral(z[:, 0], y, "f1", subject_to="precision >= 0.85", confidence=0.9)
    assert sure.evidence.certificate == "guaranteed"
    assert sure.evidence.confidence == 0.9
    assert sure.referral.low <= sure.threshold <= sure.referral.high
    referred = sure.referred(z[:, 0])
    assert sure.evidence.value == pytest.approx(f1_score(y[~referred], sure.decide(z[:, 0])[~referred]))


def test_what_cannot_be_promised_is_said():
    z, y = draw_classes(300, [0.7, 0.3], 0.5, 0)
    decision = best_referral(z[:, 0], y, "f1", subject_to="precision >= 0.9", confidence=0.9)
    assert decision.evidence.confidence is None
    assert "can be promised to give precision >= 0.9 on the other rows at 90 % confidence" in (
        decision.evidence.not_reachable
    )
    with pytest.raises(InfeasibleError, match="needs at least 22 positives"):
        best_referral(z[:40, 0], y[:40], "f1", subject_to="precision >= 0.9", confidence=0.9)
    with pytest.raises(ValueError, match="confidence= is about requirements"):
        best_referral(z[:, 0], y, "f1", max_share=0.1, confidence=0.9)
