"""Verdicts: the simplest method that is not clearly worse than the best, with tests corrected for their number."""

import re

import pytest

from metricfit.metrics import get_metric
from metricfit.stats import compare_splits
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE
from metricfit.tabular.compare.standings import compare_with, standings
from metricfit.tabular.compare.verdict import RULE, advise, headline

BASE = [0.50, 0.52, 0.48, 0.51, 0.49]
BETTER = [0.70, 0.73, 0.68, 0.71, 0.70]
SAME = [0.501, 0.519, 0.481, 0.512, 0.489]
WIDE = [0.56, 0.54, 0.88, 0.94, 0.67]
AT_HALF, LINEAR, TREES = "cross-entropy at 0.5", "logistic regression", "boosted trees"


def rows(values, metric="f1", held=None, seconds=None, not_reachable=None, required=False):
    """The standings of methods with these values, held on 5 folds and trained in 1 s a fold unless said otherwise."""
    held, seconds, not_reachable = held or {}, seconds or {}, not_reachable or {}
    reports = {
        name: [
            {
                "values": {name: value},
                "held": {name: at < held.get(name, len(of))},
                "training_seconds": seconds.get(name, 1.0),
            }
            | ({"not_reachable": {name: "recall reaches 0.4"}} if at < not_reachable.get(name, 0) else {})
            for at, value in enumerate(of)
        ]
        for name, of in values.items()
    }
    return standings(reports, get_metric(metric), required=required)


def verdict(found, metric):
    return advise(found, metric).text


def table(**others):
    return {DEFAULT: SAME, REFERENCE: BASE} | {name.replace("_", " "): of for name, of in others.items()}


def test_a_simpler_method_with_the_same_mean_is_not_passed_over():
    values = table(logistic_regression=[each - 0.0001 for each in SAME[::-1]])  # about the mean of the default
    found = rows(values, seconds={DEFAULT: 72.0, LINEAR: 0.4})
    advice = advise(found, "f1")
    assert advice.row.name == LINEAR
    assert "is simpler and trains faster (2.0 s instead of 6 min)" in advice.text


def test_of_equally_simple_methods_the_faster_is_taken():
    values = {DEFAULT: [each - 0.2 for each in BETTER], REFERENCE: [each - 0.25 for each in BETTER]}
    values |= {"focal loss": BETTER, "weighted cross-entropy": [each + 0.001 for each in BETTER[:4]] + [0.699]}
    advice = advise(rows(values, seconds={"focal loss": 1.0, "weighted cross-entropy": 8.0}), "f1")
    assert advice.row.name == "focal loss"
    assert re.search(r"Weighted cross-entropy has the highest mean f1.* is as simple and trains faster", advice.text)


def test_the_verdict_names_its_rule_in_one_sentence():
    said = verdict(rows(table()), "f1")
    assert said.endswith(RULE)
    assert RULE.count(".") - RULE.count("0.05") == 1
    for word in ("simplest", "fastest", "not clearly worse", "Holm", "number of comparisons"):
        assert word in RULE


@pytest.mark.parametrize(("metric", "span"), [("f1", 1.0), ("mcc", 2.0)])
def test_intervals_of_differences_stay_where_differences_can_lie(metric, span):
    """Three folds that disagree give a t interval of several units; two values of F1 differ by at most 1."""
    base, other = [0.9, 0.1, 0.5], [0.2, 0.8, 0.5]
    assert compare_splits(other, base, test_fraction=1 / 3, level=1 - 0.05 / 2).interval.high > span
    for comparison, _ in compare_with(base, [other, other[::-1]], get_metric(metric)):
        assert tuple(comparison.interval) == (-span, span)


def test_p_values_are_holms_and_intervals_are_simultaneous():
    found = {row.name: row for row in rows(table(boosted_trees=BETTER, focal_loss=WIDE))}
    raw = {
        name: compare_splits(found[name].values, BASE, test_fraction=0.2, level=1 - 0.05 / 3)
        for name in (DEFAULT, TREES, "focal loss")
    }
    smallest, middle, largest = sorted(raw, key=lambda name: raw[name].p_value)
    assert found[smallest].p_value == pytest.approx(3 * raw[smallest].p_value)
    assert found[middle].p_value == pytest.approx(2 * raw[middle].p_value)
    assert found[largest].p_value == pytest.approx(max(2 * raw[middle].p_value, raw[largest].p_value))
    for name, each in raw.items():
        assert found[name].difference_interval == pytest.approx(each.interval)
    assert found[REFERENCE].p_value is None


@pytest.mark.parametrize(
    ("mine", "says", "top"),
    [
        (BETTER, "default has the highest mean f1, 0.704, and is clearly better than every", "Use metricfit's default"),
        (SAME, r"Cross-entropy with a tuned threshold does as well .* and is simpler; use it", "Use cross-entropy"),
        (WIDE, r"5 folds cannot tell cross-entropy .* from it: .* is simpler, so start there", "Start with cross"),
        ([0.3, 0.33, 0.28, 0.31, 0.30], "Cross-entropy .* is clearly better than every other", "Use cross-entropy"),
        (
            BASE,
            "has the highest mean f1, 0.500, and the one method that is not clearly worse is not simpler; use it",
            "Use cross-entropy with a tuned threshold",
        ),
    ],
)
def test_between_the_default_and_the_reference(mine, says, top):
    found = rows({DEFAULT: mine, REFERENCE: BASE})
    assert re.search(says, verdict(found, "f1"))
    assert headline(found, "f1").startswith(top)


def test_where_lower_is_better_the_lowest_mean_is_best():
    found = rows({DEFAULT: BETTER, REFERENCE: BASE, TREES: [each - 0.2 for each in BETTER]}, metric="fnr")
    said = verdict(found, "fnr")
    assert "metricfit's default is clearly worse than cross-entropy with a tuned threshold (+0.204" in said
    assert "Cross-entropy with a tuned threshold has the lowest mean fnr, 0.500" in said


def test_the_same_difference_on_every_fold_is_not_called_certain():
    found = rows({DEFAULT: [each + 0.25 for each in BASE], REFERENCE: BASE})
    said = verdict(found, "f1")
    assert "-0.250 on every fold, too few values to say how sure" in said
    assert "better" not in said
    assert headline(found, "f1").startswith("Start with")
    assert (found[0].difference_interval, found[0].p_value) == (None, None)
    assert found[0].difference == pytest.approx(0.25)


def test_decisions_at_a_half_are_shown_and_never_recommended():
    found = rows({DEFAULT: SAME, REFERENCE: BASE, AT_HALF: BETTER})
    assert found[0].name == AT_HALF
    assert advise(found, "f1").row.name == REFERENCE


def test_only_methods_that_meet_the_requirements_most_often_are_considered():
    values = table(boosted_trees=BETTER)
    found = rows(values, held={TREES: 1, DEFAULT: 4, REFERENCE: 4}, required=True)
    said = verdict(found, "f1")
    assert said.startswith(
        "On the test rows the requirements held on 4 of 5 folds with metricfit's default and cross-entropy with a "
        "tuned threshold, on fewer with the others; only these are considered."
    )
    assert headline(found, "f1").startswith("Use cross-entropy with a tuned threshold")
    assert "held on 5 of 5 folds with every method." in verdict(rows(values, required=True), "f1")


def test_methods_that_cannot_meet_the_requirements_are_marked_and_come_last():
    found = rows(table(boosted_trees=BETTER), not_reachable={TREES: 2}, required=True)
    assert (found[-1].name, found[-1].not_reachable) == (TREES, ("recall reaches 0.4",) * 2)
    assert found[-1].mean == pytest.approx(0.704)  # its values are kept
    said = verdict(found, "f1")
    assert "on some folds' training rows no threshold met the requirements: boosted trees." in said
    assert headline(found, "f1").startswith("Use cross-entropy")


def test_where_no_method_can_meet_the_requirements_the_nearest_is_named():
    found = rows(table(boosted_trees=BETTER), not_reachable={TREES: 1, DEFAULT: 2, REFERENCE: 5}, required=True)
    said = verdict(found, "f1")
    assert said.startswith("No method could meet the requirements on the training rows of every fold;")
    assert "(recall reaches 0.4). Loosen the requirements" in said
    top = headline(found, "f1")
    assert top == "No method could meet the requirements everywhere. Nearest to them: boosted trees."


def test_compare_with_nothing_gives_nothing():
    assert compare_with(BASE, [], get_metric("f1")) == []
    assert compare_with(BASE, [BASE], get_metric("f1")) == [(None, None)]
