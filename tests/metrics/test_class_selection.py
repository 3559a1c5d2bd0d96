"""The metric of one class, by its number or by its name."""

import pickle

import pytest

from metricfit import Counts, metrics, parse_requirement
from metricfit.metrics import get_metric

COUNTS = Counts(tp=[3, 4, 1], fp=[1, 2, 0], fn=[2, 1, 1], tn=[4, 3, 8])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("recall[gold] >= 0.9", "recall['gold'] >= 0.9"),
        ("recall['very bad'] >= 0.9", "recall['very bad'] >= 0.9"),
        ("fbeta(beta=2)[x] <= 0.3", "fbeta(beta=2)['x'] <= 0.3"),
        ("(tp/(tp + fn))['a'] >= 0.3", "(tp / (tp + fn))['a'] >= 0.3"),
    ],
)
def test_a_class_is_named_with_or_without_quotation_marks(text, name):
    requirement = parse_requirement(text)
    assert str(requirement) == name
    assert parse_requirement(name) == requirement
    assert requirement.metric.class_index is None
    assert pickle.loads(pickle.dumps(requirement.metric)) == requirement.metric


def test_a_name_with_a_number_measures_that_class():
    named = metrics.recall.of_class(1, "gold")
    assert named.name == "recall['gold']"
    assert named(COUNTS).item() == metrics.recall[1](COUNTS).item() == 0.8
    copied = pickle.loads(pickle.dumps(named))
    assert copied == named
    assert copied.class_index == 1


def test_a_name_alone_has_no_value():
    with pytest.raises(ValueError, match=r"recall\['gold'\] names a class, and counts have class numbers"):
        metrics.recall["gold"](COUNTS)
    with pytest.raises(TypeError, match="already the metric of one class"):
        get_metric("recall[gold]")[2]
    with pytest.raises(TypeError, match="one number for the whole confusion matrix"):
        get_metric("accuracy[gold]")
