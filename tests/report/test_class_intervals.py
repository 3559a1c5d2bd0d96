"""Intervals of each class, and the pairs of classes that are confused."""

import numpy as np
import pytest
from page_parts import parts
from scipy.stats import beta
from sklearn.metrics import confusion_matrix

from metricfit import report
from metricfit.metrics import f1, precision, recall
from metricfit.report.class_intervals import class_intervals


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    truth = rng.choice(3, size=300, p=[0.5, 0.4, 0.1])
    return np.where(rng.random(300) < 0.8, truth, rng.integers(3, size=300)), truth


def test_intervals_of_recall_are_those_of_jeffreys(labels):
    guess, truth = labels
    for label, (low, high) in enumerate(class_intervals(guess, truth, 3, [recall])[0]):
        right, rows = ((guess == truth) & (truth == label)).sum(), (truth == label).sum()
        expected = beta.ppf([0.025, 0.975], right + 0.5, rows - right + 0.5)
        assert (low, high) == pytest.approx(expected, abs=0.03)


def test_drawn_rows_give_similar_intervals_and_copies_do_not_narrow_them(labels):
    guess, truth = labels
    plain = np.array(class_intervals(guess, truth, 3, [precision, f1]))
    weighted = np.array(class_intervals(guess, truth, 3, [precision, f1], weight=np.full(300, 2.0)))
    np.testing.assert_allclose(weighted, plain, atol=0.06)
    copies = np.tile(np.arange(300), 4)
    grouped = np.array(class_intervals(guess[copies], truth[copies], 3, [precision, f1], groups=copies))
    np.testing.assert_allclose(grouped, plain, atol=0.06)


def test_intervals_contain_the_value_and_absent_classes_have_none(labels):
    guess, truth = labels
    right = class_intervals(truth, truth, 4, [recall, precision])
    for metric in right:
        assert metric[3] is None
        assert all(low < 0.999 and high == 1.0 for low, high in metric[:3])
    section = report.multiclass(guess, truth, classes=list("abcd"))
    for values, intervals in zip(section.context["values"][:3], section.context["intervals"][:3], strict=True):
        assert all(low <= value <= high for value, (low, high) in zip(values, intervals, strict=True))
    assert section.context["intervals"][3] == (None,) * 4
    of_one_class = report.multiclass(guess, truth, classes=list("abc"), metric="recall[1]").context
    assert of_one_class["columns"] == ["precision", "recall", "specificity", "f1"]
    assert of_one_class["value"] == of_one_class["values"][1][1]


def test_the_pairs_most_confused_come_first(labels):
    guess, truth = labels
    section = report.multiclass(guess, truth, classes=["low", "middle", "<b>"])
    matrix = confusion_matrix(truth, guess)
    pairs = {(i, j): matrix[i, j] + matrix[j, i] for i in range(3) for j in range(i + 1, 3)}
    ordered = sorted(pairs, key=pairs.get, reverse=True)
    names = ["low", "middle", "<b>"]
    assert [pair["classes"] for pair in section.context["pairs"]] == [(names[i], names[j]) for i, j in ordered]
    first, (i, j) = section.context["pairs"][0], ordered[0]
    assert first["called"] == (matrix[i, j], matrix[j, i])
    assert first["share"] == pytest.approx(pairs[i, j] / (matrix.sum() - matrix.trace()))
    html = report.render(report.Report("t", "h", "v", [section]))
    assert "<b>" not in html
    said = " ".join(" ".join(parts(html).text).split())
    assert f"{matrix[i, j]} “{names[i]}” called “{names[j]}”, {matrix[j, i]} the other way" in said
    assert report.multiclass(truth, truth, classes=names).context["pairs"] == []
