"""Verdicts: the best mean unless a simpler method is within 1 %, with tests corrected for their number."""

import re
from dataclasses import replace

import numpy as np
import pytest

from metricfit.metrics import get_metric, parse_requirement
from metricfit.stats import compare_splits
from metricfit.tabular.compare.judging import FoldResult, judge_pooled
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE
from metricfit.tabular.compare.paired_rows import FoldTest
from metricfit.tabular.compare.verdict import RULE, advise, compare_with, standings

BASE = [0.50, 0.52, 0.48, 0.51, 0.49]
BETTER = [0.70, 0.73, 0.68, 0.71, 0.70]
SAME = [0.501, 0.519, 0.481, 0.512, 0.489]
WIDE = [0.56, 0.54, 0.88, 0.94, 0.67]
LOW = [0.30, 0.32, 0.28, 0.31, 0.29]
LINEAR = "logistic regression"
TREES, FOREST = "boosted trees", "extra trees"


def rows(values, metric="f1", held=None, seconds=None, not_reachable=None, required=False):
    """The standings of methods with these values, held on 5 folds and trained in 1 s a fold unless said otherwise."""
    held, seconds, not_reachable = held or {}, seconds or {}, not_reachable or {}
    values = {REFERENCE: [1.0] * 5 if get_metric(metric).minimize else LOW} | values
    results = {
        name: [
            FoldResult(
                value,
                seconds.get(name, 1.0),
                fold < held.get(name, len(by_fold)),
                "recall reaches 0.4" if fold < not_reachable.get(name, 0) else None,
            )
            for fold, value in enumerate(by_fold)
        ]
        for name, by_fold in values.items()
    }
    return standings(results, get_metric(metric), required=required)


def headline(table, metric="f1"):
    return advise(table, metric).sentences[0]


def contrast(table, metric="f1"):
    return advise(table, metric).sentences[1]


def details(table, metric="f1"):
    return " ".join(advise(table, metric).details)


def shifted(values, by):
    return [value + by for value in values]


def test_a_method_that_is_clearly_better_is_used():
    table = rows({DEFAULT: BETTER, TREES: BASE, LINEAR: SAME})
    advice = advise(table, "f1")
    assert (advice.row.name, advice.sure, advice.alarm) == (DEFAULT, True, None)
    assert "default has the highest mean F1, 0.704, and is clearly better than every other method." in advice.details[0]
    assert advice.sentences == (
        "Use metricfit's default, mean F1 0.704, clearly better than every other method.",
        "It is clearly better than LightGBM as it comes (by 0.404).",
    )
    assert advice.text == " ".join(advice.sentences)


def test_the_best_mean_is_used_although_the_folds_cannot_prove_it():
    table = rows({DEFAULT: WIDE, TREES: BASE, LINEAR: SAME})
    advice = advise(table, "f1")
    assert (advice.row.name, advice.sure) == (DEFAULT, False)
    low, high = re.search(r"which 5 folds cannot prove \(.* ([+-][\d.]+) to ([+-][\d.]+)\)", details(table)).groups()
    assert float(low) < 0 < float(high)
    assert "It is 0.218 ahead of logistic regression" in details(table)
    assert "the folds cannot prove it" in headline(table)


@pytest.mark.parametrize(
    ("values", "expected", "says"),
    [
        (SAME, TREES, r"Boosted trees does as well \(.*\) and is simpler"),
        (shifted(BASE, 0.0), TREES, "0.500"),
        ([0.52, 0.50, 0.49, 0.50, 0.51], TREES, r"Boosted trees comes within 1 % of it"),
        ([0.56, 0.50, 0.49, 0.50, 0.51], DEFAULT, r"ahead of boosted trees, which 5 folds cannot prove"),
    ],
)
def test_a_simpler_method_within_one_percent_is_used(values, expected, says):
    table = rows({DEFAULT: values, TREES: BASE})
    assert advise(table, "f1").row.name == expected
    assert re.search(says, details(table))


def test_the_headline_calls_a_simpler_method_the_best_only_if_it_is():
    close = rows({DEFAULT: [0.52, 0.50, 0.49, 0.50, 0.51], TREES: BASE})
    assert headline(close) == "Use boosted trees, mean F1 0.500, within 1 % of the best here, and simpler."
    ahead = rows({DEFAULT: BASE, TREES: [0.52, 0.50, 0.49, 0.50, 0.51]})
    assert headline(ahead) == "Use boosted trees, mean F1 0.504, the best here, although the folds cannot prove it."


def test_a_simpler_method_within_one_percent_is_not_used_if_it_is_clearly_worse():
    spread = [0.0040, 0.0041, 0.0039, 0.0040, 0.0041]
    above = [value + more for value, more in zip(BASE, spread, strict=True)]
    assert advise(rows({DEFAULT: above, TREES: BASE}), "f1").row.name == DEFAULT


def test_exactly_the_same_values_are_called_so():
    table = rows({DEFAULT: BETTER, TREES: BASE, LINEAR: BETTER})
    advice = advise(table, "f1")
    assert advice.row.name == LINEAR
    assert "metricfit's default does exactly as well and is not simpler" in details(table)


def test_of_methods_that_are_as_close_the_simplest_is_used_and_then_the_fastest():
    values = {DEFAULT: shifted(BASE, 0.002), TREES: BASE, FOREST: shifted(SAME, 0.0)}
    assert advise(rows(values, seconds={FOREST: 0.5}), "f1").row.name == FOREST
    assert advise(rows(values, seconds={FOREST: 2.0}), "f1").row.name == TREES
    assert advise(rows(values | {LINEAR: shifted(BASE, -0.001)}), "f1").row.name == LINEAR


def test_a_difference_that_rounds_to_0_is_not_called_0():
    table = rows({DEFAULT: shifted(BASE, -0.1), TREES: [0.499, 0.52, 0.481, 0.511, 0.4885], LINEAR: BASE})
    assert "It is less than 0.001 ahead of boosted trees" in details(table)


def test_the_reference_is_recommended_where_nothing_is_better():
    table = rows({DEFAULT: SAME, REFERENCE: BASE, LINEAR: LOW})
    advice = advise(table, "f1")
    assert (advice.row.name, advice.row.plain) == (REFERENCE, True)
    assert headline(table).startswith("Use LightGBM as it comes, mean F1 0.500, within 1 % of the best here")
    assert advise(rows({DEFAULT: WIDE, REFERENCE: shifted(WIDE, -0.02)}), "f1").row.name == DEFAULT


def test_the_users_own_model_is_part_of_the_verdict():
    values = {"mine": BASE, "mine, tuned": BETTER, REFERENCE: SAME, DEFAULT: shifted(BETTER, -0.01)}
    kinds = {"complexity": {"mine": 0, "mine, tuned": 1, DEFAULT: 7, REFERENCE: 3}, "plain": {"mine", REFERENCE}}
    results = {name: [FoldResult(value, 1.0) for value in by_fold] for name, by_fold in values.items()}
    table = standings(results, get_metric("f1"), **kinds)
    assert headline(table) == "Use 'mine, tuned', mean F1 0.704, the best here, although the folds cannot prove it."
    assert contrast(table) == "It is clearly better than 'mine' (by 0.204) and LightGBM as it comes (by 0.204)."
    level = standings(results | {"mine": [FoldResult(value) for value in BETTER]}, get_metric("f1"), **kinds)
    assert headline(level) == "Use 'mine', mean F1 0.704, the best here, although the folds cannot prove it."
    assert contrast(level).startswith("It does exactly as well as 'mine, tuned'; ")


@pytest.mark.parametrize("held", [0, 5])
def test_under_requirements_only_decisions_that_were_chosen_for_them_are_recommended(held):
    table = rows({DEFAULT: SAME, REFERENCE: BETTER, TREES: LOW}, held={REFERENCE: held}, required=True)
    assert advise(table, "f1").row.name == DEFAULT
    assert "every other one considered" in headline(rows({DEFAULT: BETTER, TREES: LOW}, required=True))
    assert contrast(table) == "It is clearly worse than LightGBM as it comes (by 0.204)."
    alone = rows({REFERENCE: BETTER}, required=True)
    assert advise(alone, "f1").row.name == REFERENCE


@pytest.mark.parametrize("values", [{}, {DEFAULT: WIDE}, {DEFAULT: BETTER, "all positive": BETTER}])
def test_a_verdict_has_two_sentences_of_at_most_25_words(values):
    advice = advise(rows({TREES: BASE, LINEAR: SAME} | values), "f1")
    for sentence in advice.sentences:
        assert sentence.endswith(".")
        assert len(sentence.split()) <= 25
        assert not re.search(r"\.\s", sentence)


def test_the_verdict_names_its_rule_in_one_sentence():
    assert advise(rows({DEFAULT: SAME, TREES: BASE}), "f1").details[-1] == RULE
    assert RULE.count(".") - RULE.count("0.05") == 1
    for word in ("best mean", "simpler", "within 1 %", "not clearly worse", "Holm", "number of comparisons"):
        assert word in RULE


@pytest.mark.parametrize(("metric", "span"), [("f1", 1.0), ("mcc", 2.0)])
def test_intervals_of_differences_stay_where_differences_can_lie(metric, span):
    """Three folds that disagree give a t interval of several units; two values of F1 differ by at most 1."""
    base, other = [0.9, 0.1, 0.5], [0.2, 0.8, 0.5]
    assert compare_splits(other, base, test_fraction=1 / 3, level=1 - 0.05 / 2).interval.high > span
    test = FoldTest({"base": base, "one": other, "two": other[::-1]}, get_metric(metric))
    for comparison, _ in compare_with("base", ["one", "two"], test):
        assert tuple(comparison.interval) == (-span, span)


def test_p_values_are_holms_and_intervals_are_simultaneous_and_baselines_do_not_count():
    values = {DEFAULT: SAME, REFERENCE: BASE, FOREST: BETTER, LINEAR: WIDE, "all positive": [0.3] * 5}
    table = {row.name: row for row in rows(values)}
    raw = {
        name: compare_splits(table[name].values, BASE, test_fraction=0.2, level=1 - 0.05 / 3)
        for name in (DEFAULT, FOREST, LINEAR)
    }
    smallest, middle, largest = sorted(raw, key=lambda name: raw[name].p_value)
    assert table[smallest].p_value == pytest.approx(3 * raw[smallest].p_value)
    assert table[middle].p_value == pytest.approx(2 * raw[middle].p_value)
    assert table[largest].p_value == pytest.approx(max(2 * raw[middle].p_value, raw[largest].p_value))
    for name, comparison in raw.items():
        assert table[name].difference_interval == pytest.approx(comparison.interval)
    for name in (REFERENCE, "all positive"):
        assert (table[name].p_value, table[name].difference) == (None, None)


def test_where_lower_is_better_the_lowest_mean_is_best():
    table = rows({DEFAULT: BETTER, TREES: BASE, LINEAR: shifted(BETTER, -0.1)}, metric="fnr")
    assert "Boosted trees has the lowest mean false negative rate, 0.500" in details(table, "fnr")
    assert headline(table, "fnr").startswith("Use boosted trees, mean false negative rate 0.500, ")
    assert contrast(table, "fnr") == "It is clearly better than LightGBM as it comes (by 0.500)."


def test_the_same_difference_on_every_fold_is_not_called_certain():
    table = rows({DEFAULT: shifted(BASE, 0.25), TREES: BASE})
    assert "0.250 ahead of boosted trees on every fold, which leaves open how sure that is" in details(table)
    assert "clearly better" not in headline(table)
    assert "cannot prove it" in headline(table)
    constant = rows({DEFAULT: shifted(BASE, 0.25), REFERENCE: BASE})
    assert (constant[0].difference_interval, constant[0].p_value) == (None, None)
    assert constant[0].difference == pytest.approx(0.25)
    assert contrast(constant) == "5 folds cannot prove its lead over LightGBM as it comes (0.250)."


@pytest.mark.parametrize(
    ("floor", "alarm", "says"),
    [
        (shifted(BASE, 0.3), True, "is no better than calling every row positive, which has 0.800"),
        (BASE, True, "is no better than calling every row positive, which has 0.500"),
        ([0.60, 0.42, 0.38, 0.51, 0.49], True, r"5 folds cannot tell it from calling every row positive \(0.480\)"),
        (shifted(SAME, -0.3), False, ""),
    ],
)
def test_the_floor_alarm(floor, alarm, says):
    table = rows({DEFAULT: BASE, TREES: BASE, "all positive": floor, "none positive": [0.0] * 5})
    advice = advise(table, "f1")
    assert advice.row.name == TREES
    assert (advice.alarm == "calling every row positive") == alarm
    assert re.search(says, details(table))
    assert re.search(says, contrast(table))
    assert headline(table).startswith("No method is clearly better than" if alarm else "Use boosted trees")


def test_where_lower_is_better_the_floor_is_the_lowest_baseline():
    table = rows({DEFAULT: BASE, TREES: BASE, "all positive": [0.4] * 5, "none positive": [0.9] * 5}, metric="fnr")
    assert advise(table, "fnr").alarm == "calling every row positive"


def test_a_baseline_that_does_not_meet_the_requirements_is_no_floor():
    values = {DEFAULT: BASE, TREES: BASE, "all positive": [0.9] * 5}
    assert advise(rows(values, held={"all positive": 0}, required=True), "f1").alarm is None
    assert advise(rows(values, required=True), "f1").alarm is not None


def required_rows(values, recalls, held=None):
    """Standings whose methods have these recalls on 400 positives, where 0.9 is required."""
    requirement = [parse_requirement("recall >= 0.9")]
    labels = np.repeat([1, 0], 400)
    found = []
    for row in rows(values, held=held, required=True):
        decided = np.where(np.arange(800) < round(400 * recalls.get(row.name, 0.9)), 1, 0)
        found.append(replace(row, requirements=judge_pooled(decided, labels, 2, requirement)))
    return found


def test_a_requirement_that_is_missed_by_chance_leaves_no_method_out():
    values = {DEFAULT: SAME, TREES: BASE, FOREST: BETTER}
    table = required_rows(values, {DEFAULT: 0.91, TREES: 0.9, FOREST: 0.89}, held={FOREST: 2})
    assert advise(table, "f1").row.name == FOREST
    assert re.search(
        r"With it, on the test rows of all folds together, recall >= 0.9 is missed by no more than chance \(0.890, "
        r"95 % interval 0.8\d+ to 0.9\d+\). On single folds the requirements held 2 of 5 times.",
        details(table),
    )
    assert "with recall >= 0.9 missed (0.890)." in headline(table)


def test_the_verdict_says_first_who_met_the_requirement_and_tells_nobody_apart_who_missed_it():
    values = {DEFAULT: BETTER, TREES: BASE, REFERENCE: shifted(BETTER, 0.001)}
    plain = {row.name: row for row in required_rows(values, {DEFAULT: 0.92, TREES: 0.91, REFERENCE: 0.3})}
    table = [replace(row, plain=row.name == REFERENCE) for row in plain.values()]
    assert headline(table).startswith(
        "metricfit's default and boosted trees met the requirement, of 3 methods: use metricfit's default"
    )
    assert contrast(table) == "LightGBM as it comes missed recall >= 0.9 (0.300)."
    met = [
        replace(row, plain=row.name == REFERENCE)
        for row in required_rows(values, dict.fromkeys([*values, REFERENCE], 0.92))
    ]
    assert headline(met).startswith("All 3 methods met the requirement: use metricfit's default")
    assert "LightGBM as it comes (" in contrast(met)


def test_of_methods_with_one_mean_the_simplest_is_used():
    table = rows({DEFAULT: BASE, TREES: BASE[::-1], LINEAR: [0.48, 0.49, 0.50, 0.51, 0.52], FOREST: BASE})
    assert advise(table, "f1").row.name == LINEAR


def test_methods_with_which_a_requirement_clearly_fails_are_not_considered():
    values = {DEFAULT: SAME, TREES: BASE, FOREST: BETTER}
    table = required_rows(values, {DEFAULT: 0.91, TREES: 0.9, FOREST: 0.8})
    met = "metricfit's default, boosted trees and LightGBM as it comes met the requirement, of 4 methods"
    assert headline(table).startswith(f"{met}: use boosted trees")
    assert details(table).startswith(
        "Not considered, because a requirement clearly failed on the test rows of all folds together: extra trees "
        "(recall >= 0.9: 0.800, 95 % interval 0.7"
    )
    none = required_rows(values, {DEFAULT: 0.8, TREES: 0.7, FOREST: 0.5})
    assert advise(none, "f1").row.name == DEFAULT
    assert details(none).startswith("With every method a requirement clearly failed")


def test_methods_that_cannot_meet_the_requirements_are_marked_and_come_last():
    table = rows({DEFAULT: SAME, TREES: BASE, FOREST: BETTER}, not_reachable={FOREST: 2}, required=True)
    assert (table[-1].name, table[-1].not_reachable) == (FOREST, ("recall reaches 0.4",) * 2)
    assert table[-1].mean == pytest.approx(0.704)  # its values are kept
    assert "on some folds' training rows no threshold met the requirements: extra trees." in details(table)
    assert headline(table).startswith("Use boosted trees")


def test_where_no_method_can_meet_the_requirements_the_nearest_is_named():
    values = {DEFAULT: SAME, TREES: BASE, FOREST: BETTER}
    table = rows(values, not_reachable={FOREST: 1, DEFAULT: 2, TREES: 5}, required=True)
    text = details(table)
    assert text.startswith("No method could meet the requirements on the training rows of every fold;")
    assert "(recall reaches 0.4). Loosen the requirements" in text
    expected = "No method could meet the requirements everywhere. Nearest to them: extra trees."
    assert advise(table, "f1").text == expected


def test_compare_with_nothing_gives_nothing():
    test = FoldTest({"base": BASE, "same": BASE}, get_metric("f1"))
    assert compare_with("base", [], test) == []
    assert compare_with("base", ["same"], test) == [(None, None)]
