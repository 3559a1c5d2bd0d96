"""The section of several classes: intervals of each class, and the pairs of classes that are confused."""

import numpy as np
import pytest
from page_parts import parts
from sklearn.metrics import confusion_matrix

from metricfit import report


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    truth = rng.choice(3, size=300, p=[0.5, 0.4, 0.1])
    return np.where(rng.random(300) < 0.8, truth, rng.integers(3, size=300)), truth


def test_intervals_contain_the_values(labels):
    guess, truth = labels
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
    assert f"{matrix[i, j]} “{names[i]}” predicted “{names[j]}”, {matrix[j, i]} the other way" in said
    assert report.multiclass(truth, truth, classes=names).context["pairs"] == []
