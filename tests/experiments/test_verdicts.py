"""Verdicts: what the interval, the probabilities and the requirements say, and one message at the top."""

import re

import pytest

from metricfit.experiments.methods import DEFAULT, REFERENCE
from metricfit.experiments.standings import Row, beside, interval_of_mean
from metricfit.experiments.verdicts import headline, verdict
from metricfit.metrics import get_metric

BASE = [0.50, 0.52, 0.48, 0.51, 0.49]
BETTER = [0.70, 0.73, 0.68, 0.71, 0.70]
WORSE = [0.30, 0.33, 0.28, 0.31, 0.30]
SAME = [0.501, 0.519, 0.481, 0.512, 0.489]


def row(name, values, reference=BASE, metric="f1", held=5):
    judged = get_metric(metric)
    versus = None if name == REFERENCE else beside(values, reference, judged)
    unreached = ("precision reaches 0.4",) * list(values).count(None)
    return Row(name, tuple(values), interval_of_mean(values, judged), 1.0, held, versus, unreached)


def both(mine, reference=BASE, *others, metric="f1", held=(5, 5)):
    """The default and the reference with others, best first, those without a mean last."""
    two = row(DEFAULT, mine, reference, metric, held[0]), row(REFERENCE, reference, metric=metric, held=held[1])
    sign = 1 if get_metric(metric).minimize else -1
    return sorted([*two, *others], key=lambda each: (each.mean is None, sign * (each.mean or 0)))


@pytest.mark.parametrize(
    ("mine", "says", "top"),
    [
        (BETTER, "default is better than .*; use it", "Use metricfit's default: mean f1 0.704."),
        (WORSE, "Cross-entropy .* is better here .*; use it", "Use cross-entropy with a tuned threshold"),
        (SAME, "does as well here .*; use it, it is simpler", "Use cross-entropy with a tuned threshold"),
        (BASE, "does exactly as well here", "Use cross-entropy with a tuned threshold"),
        ([0.45, 0.51, 0.46, 0.44, 0.485], "does at least as well here .*; use it", "Use cross-entropy"),
        (
            [0.51, 0.50, 0.49, 0.52, 0.48],
            r"^5 folds cannot tell .* \+0.000, 95 % [^,]*\. .* start there",
            "Start with cross",
        ),
        ([0.56, 0.54, 0.88, 0.94, 0.67], "5 folds cannot tell .* in favour of metricfit's default", "Start with cross"),
        ([0.5, 0.2, 0.56, 0.2, 0.52], "cannot tell .* in favour of cross-entropy", "Start with cross-entropy"),
    ],
)
def test_the_verdict_is_what_interval_and_probabilities_say(mine, says, top):
    rows = both(mine)
    assert re.search(says, verdict(rows, "f1"))
    assert headline(rows, "f1").startswith(top)


def test_two_folds_far_apart_are_undecided():
    rows = both([0.5, 0.4], [0.39, 0.43])
    assert re.match("2 folds cannot tell", verdict(rows, "f1"))
    assert "does as well" not in verdict(rows, "f1")


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (-0.2, "default is better"),
        (0.2, "Cross-entropy .* is better here"),
        (0.02, "does at least as well"),
        (-0.02, "in favour of metricfit's default"),
    ],
)
def test_where_lower_is_better_a_lower_mean_wins(by, says):
    mine = [each + by + step for each, step in zip(BASE, (0.02, -0.02, 0.02, -0.02, 0), strict=True)]
    assert re.search(says, verdict(both(mine, metric="fnr"), "fnr"))


def test_the_same_difference_on_every_fold_is_not_called_certain():
    rows = both([each + 0.25 for each in BASE])
    assert "+0.250 on every fold" in verdict(rows, "f1")
    assert "better" not in verdict(rows, "f1")
    assert headline(rows, "f1").startswith("Start with")
    assert (rows[0].difference_interval, rows[0].p_value) == (None, None)
    assert rows[0].difference == pytest.approx(0.25)


@pytest.mark.parametrize("mine", [BETTER, WORSE, SAME, BASE])
@pytest.mark.parametrize(("held", "theirs"), [(5, 0), (2, 4), (3, 3)])
def test_what_holds_more_often_is_advised_and_both_are_told(mine, held, theirs):
    rows = both(mine, held=(held, theirs))
    said, top = verdict(rows, "f1", required=True), headline(rows, "f1", required=True)
    if held == theirs:
        assert "held on 3 of 5 folds with each of the two" in said
        assert ("metricfit" in top) == (mine is BETTER)
        return
    first, second = ("metricfit's default", "cross-entropy with a tuned threshold")[:: 1 if held > theirs else -1]
    assert f"held on {max(held, theirs)} of 5 folds with {first}, on {min(held, theirs)} with {second}." in said
    assert first in top
    assert not re.search(rf"use it, it is simpler|start with {second}", said) or held < theirs


def test_another_winner_is_used_only_where_it_is_clearly_better():
    clear, unclear = row("boosted trees", [0.9] * 4 + [0.91]), row("boosted trees", [0.9, 0.3, 0.4, 0.6, 0.7])
    said = verdict(both(SAME, BASE, clear), "f1")
    assert "boosted trees: 0.902 (beside cross-entropy with a tuned threshold: +0.402" in said
    assert said.endswith("that is clearly better, so use it.")
    assert said.count("use it") == 1
    assert headline(both(SAME, BASE, clear), "f1") == "Use boosted trees: mean f1 0.902."
    said = verdict(both(SAME, BASE, unclear), "f1")
    assert said.endswith("not clearly better.")
    assert headline(both(SAME, BASE, unclear), "f1").startswith(
        "Use cross-entropy with a tuned threshold: mean f1 0.500"
    )


def test_a_winner_that_holds_less_often_is_named_but_not_used():
    trees = row("boosted trees", [0.9] * 4 + [0.91], held=1)
    said = verdict(both(BETTER, BASE, trees), "f1", required=True)
    assert said.endswith("; with it the requirements held on 1 of 5 folds.")
    assert headline(both(BETTER, BASE, trees), "f1", required=True).startswith("Use metricfit's default")


GAPS = [0.5, None, 0.5, None, 0.5]


@pytest.mark.parametrize(
    ("mine", "theirs", "others", "says", "top"),
    [
        (
            GAPS,
            BASE,
            [],
            "With metricfit's default no threshold .* of 2 of 5 folds. Use cross-entropy",
            "Use cross-entropy",
        ),
        (BETTER, GAPS, [], "With cross-entropy .* of 2 of 5 folds. Use metricfit's default", "Use metricfit's default"),
        (
            GAPS,
            GAPS,
            [row("boosted trees", BASE)],
            "default .* With cross.* met them, boosted trees has",
            "Use boosted",
        ),
        (GAPS, GAPS, [row("cross-entropy at 0.5", BASE)], "loosen the requirements", "No method met the requirements"),
    ],
)
def test_requirements_out_of_reach(mine, theirs, others, says, top):
    rows = both(mine, theirs, *others)
    assert re.search(says, verdict(rows, "f1", required=True))
    assert headline(rows, "f1", required=True).startswith(top)
    assert all(each.mean is None and each.versus is None for each in rows if None in each.values)
