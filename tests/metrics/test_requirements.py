"""Requirements: a metric against a bound, written as a comparison or as text."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

from metricfit import Counts, metric, metrics, parse_requirement
from metricfit.metrics import Requirement

COUNTS = Counts(tp=3, fp=1, fn=2, tn=4)  # recall 0.6, fpr 0.2


def test_comparisons_make_requirements_from_both_sides():
    at_least, at_most = Requirement(metrics.recall, ">=", 0.9), Requirement(metrics.fpr, "<=", 0.1)
    assert (metrics.recall >= 0.9) == (0.9 <= metrics.recall) == at_least  # noqa: SIM300
    assert (metrics.fpr <= 0.1) == (0.1 >= metrics.fpr) == at_most  # noqa: SIM300
    assert (np.float64(0.9) <= metrics.recall) == at_least
    assert (metrics.recall >= 0.9) != (metrics.recall >= 0.8) != (metrics.recall <= 0.9)
    assert hash(metrics.recall >= 0.9) == hash(at_least)


def test_numpy_and_integer_bounds_are_numbers():
    assert (metrics.recall >= 1).bound == 1
    assert float((metrics.recall >= np.float32(0.5)).bound) == 0.5


@pytest.mark.parametrize(
    "chained",
    [lambda: 0.8 <= metrics.recall <= 0.9, lambda: metrics.recall >= 0.8 >= 0.1, lambda: bool(metrics.recall >= 0.5)],
)
def test_a_chained_comparison_cannot_drop_a_bound(chained):
    with pytest.raises(TypeError, match=r"neither true nor false.*write two requirements.*holds\(counts\)"):
        chained()


def test_and_and_not_raise_too():
    with pytest.raises(TypeError, match="neither true nor false"):
        (metrics.recall >= 0.8) and (metrics.precision >= 0.5)  # noqa: B018
    with pytest.raises(TypeError, match="neither true nor false"):
        not (metrics.recall >= 0.8)  # noqa: B018


def test_strict_comparisons_name_the_right_one():
    with pytest.raises(TypeError, match=r"write recall >= 0\.9: a requirement includes its bound"):
        metrics.recall > 0.9  # noqa: B015
    with pytest.raises(TypeError, match=r"write fpr <= 0\.1: a requirement includes its bound"):
        metrics.fpr < 0.1  # noqa: B015
    with pytest.raises(TypeError, match=r"write recall >= 0\.9"):
        0.9 < metrics.recall  # noqa: B015, SIM300


def test_a_bound_outside_the_range_is_refused():
    with pytest.raises(ValueError, match=r"recall >= 95: recall lies between 0 and 1; did you mean 0\.95\?"):
        metrics.recall >= 95  # noqa: B015
    with pytest.raises(ValueError, match=r"recall >= -0\.5: recall lies between 0 and 1$"):
        metrics.recall >= -0.5  # noqa: B015
    with pytest.raises(ValueError, match=r"mcc >= 90: mcc lies between -1 and 1; did you mean 0\.9\?"):
        metrics.mcc >= 90  # noqa: B015
    with pytest.raises(ValueError, match=r"lies between 0 and 10$"):
        metrics.cost(fp=1, fn=10) <= -1  # noqa: B015
    with pytest.raises(ValueError, match="recall lies between 0 and 1"):
        metrics.recall >= math.inf  # noqa: B015


def test_a_bound_just_above_1_is_not_taken_for_a_percentage():
    with pytest.raises(ValueError, match=r"recall lies between 0 and 1$"):
        metrics.recall >= 1.05  # noqa: B015


@pytest.mark.parametrize("bound", ["0.9", None, True, math.nan, [0.9], metrics.f1])
def test_a_bound_must_be_a_number(bound):
    with pytest.raises(TypeError, match="the bound of recall must be a number, got"):
        metrics.recall >= bound  # noqa: B015


def test_edges_of_the_range_are_allowed():
    for given in (metrics.recall >= 0, metrics.recall >= 1, metrics.mcc >= -1, metrics.cost(fp=1, fn=10) <= 10):
        assert isinstance(given, Requirement)


def test_violation_is_positive_on_the_wrong_side_and_holds_agrees():
    for given, violation in (
        (metrics.recall >= 0.75, 0.15),
        (metrics.recall >= 0.5, -0.1),
        (metrics.recall <= 0.5, 0.1),
        (metrics.fpr <= 0.125, 0.075),
        (metrics.fpr <= 0.25, -0.05),
        (metrics.fpr >= 0.25, 0.05),
    ):
        assert given.violation(COUNTS).item() == pytest.approx(violation)
        assert given.holds(COUNTS).tolist() == [violation <= 0]


def test_the_direction_of_the_metric_does_not_turn_the_requirement():
    @metric(minimize=True)
    def own_low_is_good_for_requirements(c):
        return c.tp / c.positives

    assert (own_low_is_good_for_requirements >= 0.75).violation(COUNTS).item() == pytest.approx(0.15)


def test_on_the_bound_it_holds():
    assert (metrics.recall >= 0.6).holds(COUNTS).all()
    assert (metrics.recall <= 0.6).holds(COUNTS).all()
    assert (metrics.recall >= 0.6).violation(COUNTS) == 0


def test_violation_is_per_class_and_differentiable():
    tp = torch.tensor([3.0, 1.0], requires_grad=True)
    counts = Counts(tp, torch.tensor([1.0, 1.0]), torch.tensor([2.0, 3.0]), torch.tensor([4.0, 5.0]))
    violation = (metrics.recall >= 0.5).violation(counts)
    assert violation.tolist() == pytest.approx([-0.1, 0.25])
    violation.sum().backward()
    assert (tp.grad < 0).all()
    assert (metrics.recall[1] >= 0.5).violation(counts).tolist() == pytest.approx([0.25])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("recall >= 0.9", lambda: metrics.recall >= 0.9),
        ("recall>=0.9", lambda: metrics.recall >= 0.9),
        ("  0.9 <= recall ", lambda: metrics.recall >= 0.9),
        ("0.1 >= fpr", lambda: metrics.fpr <= 0.1),
        ("recall[2] >= .9", lambda: metrics.recall[2] >= 0.9),
        ("fbeta(beta=2) >= 0.5", lambda: metrics.fbeta(beta=2) >= 0.5),
        ("fbeta(beta=[1, 2])[1] >= 5e-1", lambda: metrics.fbeta(beta=[1, 2])[1] >= 0.5),
        ("mcc >= -0.5", lambda: metrics.mcc >= -0.5),
        ("tpr >= 1", lambda: metrics.recall >= 1),
        ("cost(1, fn=10) <= 3", lambda: metrics.cost(fp=1, fn=10) <= 3),
    ],
)
def test_text_reads_as_the_comparison_it_shows(text, expected):
    assert parse_requirement(text) == expected()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recall > 0.9", "compare with >=, <= or =="),
        ("recall != 0.9", "compare with >=, <= or =="),
        ("recall in 0.9", "compare with >=, <= or =="),
        ("recall == 0.9 + 0.1", "write a tolerance as in"),
        ("recall == 0.9 +- -0.1", "must be finite and at least 0"),
        ("recall.gap() <= 0.1", "cannot read the metric"),
        ("recall.gap(1) <= 0.1", "at least two groups"),
        ("recall.gap(['a', 'a']) <= 0.1", "each once"),
        ("recall.pop(2) <= 0.1", "cannot read the metric"),
        ("0.8 <= recall <= 0.9", "write one bound"),
        ("recall >= 0.9 and f1 >= 0.5", "write one bound"),
        ("recall", "write one bound"),
        ("", "write one bound"),
        ("recall >=", "write one bound"),
        ("recall => 0.9", "write one bound"),
        ("recall >= 90%", "write one bound"),
        ("recall >= f1", "one side must be a number"),
        ("recall >= True", "one side must be a number"),
        ("recall >= '0.9'", "one side must be a number"),
        ("recall >= nan", "one side must be a number"),
        ("0.9 >= 0.8", "cannot read the metric"),
        ("recal >= 0.9", "did you mean 'recall'"),
        ("recall >= 95", r"did you mean 0\.95\?"),
    ],
)
def test_text_that_is_no_requirement_says_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=message):
        parse_requirement(text)


@pytest.mark.parametrize("given", [0.9, None, ["recall >= 0.9"], metrics.recall])
def test_what_is_neither_text_nor_requirement_is_refused(given):
    with pytest.raises(TypeError, match=r"a requirement is written like metrics\.recall >= 0\.9"):
        parse_requirement(given)


def test_a_requirement_passes_through_reads_back_and_copies():
    given = metrics.fbeta(beta=2)[1] >= 0.125
    assert parse_requirement(given) is given
    assert parse_requirement(str(given)) == given
    assert copy.deepcopy(given) == given
    assert pickle.loads(pickle.dumps(given)) == given


def test_its_text_keeps_every_digit_of_the_bound():
    given = metrics.recall >= 0.12345678
    assert parse_requirement(str(given)) == given
