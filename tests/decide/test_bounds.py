"""Exact bounds of rates against scipy's binomial test, and the rows that a guarantee needs."""

import numpy as np
import pytest
from scipy.stats import binomtest

from metricfit import Counts
from metricfit.decide.bounds import (
    RATES,
    check_confidence,
    check_enough_rows,
    easiest_end,
    exact_bound,
    p_values,
    rate_of,
    rows_needed,
)
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics import get_metric, parse_requirement
from metricfit.metrics.feasibility import InfeasibleError

#: The rows in the share, and those of which it is a share, by (label, decision).
SHARES = {
    "recall": ("11", "11 10"),
    "fnr": ("10", "11 10"),
    "specificity": ("00", "00 01"),
    "fpr": ("01", "00 01"),
    "selection_rate": ("11 01", "11 10 01 00"),
    "precision": ("11", "11 01"),
    "npv": ("00", "00 10"),
    "accuracy": ("11 00", "11 10 01 00"),
}


def rows(seed, n=40):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return y, np.where(rng.random(n) < 0.8, y, 1 - y)


@pytest.mark.parametrize("sense", [">=", "<="])
@pytest.mark.parametrize("name", SHARES)
def test_the_p_value_is_that_of_scipys_binomial_test_on_the_rows_of_the_rate(name, sense):
    assert set(SHARES) == set(RATES)
    for seed in range(5):
        y, decided = rows(seed)
        kinds = [f"{a}{b}" for a, b in zip(y, decided, strict=True)]
        k, m = (sum(kind in share.split() for kind in kinds) for share in SHARES[name])
        alternative = "greater" if sense == ">=" else "less"
        expected = binomtest(k, m, 0.7, alternative=alternative).pvalue
        counts = Counts.from_labels(np.array(decided), np.array(y)).map(lambda cell: cell[None])
        assert p_values(parse_requirement(f"{name} {sense} 0.7"), counts) == pytest.approx([expected], rel=1e-9)
        assert get_metric(name)(counts).item() == pytest.approx(k / m)


@pytest.mark.parametrize("sense", [">=", "<="])
def test_the_bound_is_scipys_exact_one_sided_interval(sense):
    for k, m in [(0, 5), (5, 5), (3, 7), (57, 60), (1, 400)]:
        test = binomtest(k, m, alternative="greater" if sense == ">=" else "less")
        low, high = test.proportion_ci(0.9, method="exact")
        assert exact_bound(k, m, 0.9, sense) == pytest.approx(low if sense == ">=" else high, rel=1e-9)
    assert exact_bound(0, 0, 0.9, sense) == (0 if sense == ">=" else 1)


def test_the_bound_is_where_the_p_value_crosses_the_level():
    counts = Counts(tp=[[45.0]], fp=[[0.0]], fn=[[5.0]], tn=[[50.0]])
    bound = exact_bound(45, 50, 0.95, ">=")
    below, above = (p_values(get_metric("recall") >= bound + step, counts).item() for step in (-1e-6, 1e-6))
    assert below < 0.05 < above


def test_without_trials_nothing_is_certain_and_a_bound_that_always_holds_is():
    none = Counts(tp=[[0.0]], fp=[[0.0]], fn=[[3.0]], tn=[[4.0]])
    assert p_values(parse_requirement("precision >= 0.1"), none).tolist() == [1.0]
    assert p_values(parse_requirement("precision <= 0.1"), none).tolist() == [1.0]
    assert p_values(parse_requirement("recall >= 0"), none).tolist() == [0.0]
    assert p_values(parse_requirement("fpr <= 1"), none).tolist() == [0.0]


@pytest.mark.parametrize("text", ["recall >= 0.95", "fnr <= 0.05", "precision >= 0.5", "selection_rate <= 0.02"])
def test_one_row_less_than_needed_is_not_enough(text):
    requirement = parse_requirement(text)
    share = requirement.bound if requirement.sense == ">=" else 1 - requirement.bound
    needed = rows_needed(requirement, 0.05)
    assert share**needed <= 0.05 < share ** (needed - 1)


def test_the_end_at_which_a_requirement_is_easiest():
    ends = {text: easiest_end(parse_requirement(f"{text} 0.5")) for text in ("recall >=", "fpr <=", "fnr <=", "npv >=")}
    assert ends == {"recall >=": "lowest", "fpr <=": "highest", "fnr <=": "lowest", "npv >=": None}


def test_the_message_says_what_is_needed_and_what_can_be_promised():
    with pytest.raises(InfeasibleError) as error:
        check_enough_rows(parse_requirement("recall >= 0.95"), 23, 500, 0.05)
    assert str(error.value) == (
        "recall >= 0.95 at 95 % confidence needs at least 59 positives; there are 23; the highest recall that can be "
        "promised, with no miss among them, is 0.87"
    )
    check_enough_rows(parse_requirement("recall >= 0.87"), 23, 500, 0.05)


@pytest.mark.parametrize(
    ("text", "counts", "parts"),
    [
        ("fpr <= 0.01", (500, 100), ["299 negatives", "are 100", "lowest fpr", "no false alarm", "0.03"]),
        ("selection_rate <= 0.02", (9, 91), ["149 rows", "are 100", "none of them flagged", "0.03"]),
        ("precision >= 0.9", (11, 900), ["29 positives among the 80 % of the rows", "are 8", "no false alarm beside"]),
        ("npv >= 0.9", (900, 1), ["29 negatives", "are none"]),
        ("recall >= 1", (9999, 9999), ["cannot be promised with any number of rows"]),
        ("recall <= 0.01", (20, 20), ["299 positives", "lowest recall", "at best"]),
    ],
)
def test_messages_for_other_rates(text, counts, parts):
    share = 0.8 if text[:3] in ("pre", "npv") else 1.0
    with pytest.raises(InfeasibleError) as error:
        check_enough_rows(parse_requirement(text), *counts, 0.05, share=share)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize("text", ["f1 >= 0.5", "cost(fp=1, fn=1) <= 0.5", "mcc >= 0.5"])
def test_a_metric_without_an_exact_bound_is_refused_with_those_that_have_one(text):
    with pytest.raises(InvalidValueError, match=r"recall, fnr, specificity, fpr, selection_rate, precision, npv"):
        rate_of(parse_requirement(text))


@pytest.mark.parametrize("wrong", [0, 1, 95, -0.1, float("nan")])
def test_a_confidence_lies_between_0_and_1(wrong):
    with pytest.raises(InvalidValueError, match=r"did you mean 0.95" if wrong == 95 else "between 0 and 1"):
        check_confidence(wrong)


@pytest.mark.parametrize("wrong", ["0.95", True, None])
def test_a_confidence_is_a_number(wrong):
    with pytest.raises(InvalidTypeError, match="between 0 and 1"):
        check_confidence(wrong)
