"""evaluate per group: the values of scikit-learn on the rows of each group, and the gaps between them."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, recall_score, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from metricfit import metrics
from metricfit.train import evaluate

NAMES = np.array(["north", "south", "west"])


def rows(n=300, outputs=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, outputs, generator=generator)
    y = torch.randint(2 if outputs == 1 else outputs, (n,), generator=generator)
    return x, y, torch.arange(n) % 3


def recalls(x, y, group):
    return [recall_score(y[group == k], x[group == k, 0] >= 0) for k in range(3)]


def test_values_of_groups_are_scikit_learns():
    x, y, group = rows()
    result = evaluate(nn.Identity(), (x, y), ["recall", "auroc", "recall.gap(3)"], groups=NAMES[group])
    assert list(result.by_group) == ["north", "south", "west"]
    for k, name in enumerate(NAMES):
        member = group == k
        assert result.by_group[name]["recall"] == pytest.approx(recall_score(y[member], x[member, 0] >= 0))
        assert result.by_group[name]["auroc"] == pytest.approx(roc_auc_score(y[member], x[member, 0]))
    assert list(result.values) == ["recall", "auroc", "recall.gap(3)"]
    assert result["recall.gap(3)"] == pytest.approx(np.ptp(recalls(x, y, group)))
    assert result["recall"] == pytest.approx(recall_score(y, x[:, 0] >= 0))
    assert evaluate(nn.Identity(), (x, y), "recall").by_group == {}


def test_several_classes_weights_and_ignored_labels():
    x, y, group = rows(outputs=4)
    result = evaluate(nn.Identity(), (x, y), ["f1", metrics.f1.gap(3), "kappa"], groups=group)
    values = [f1_score(y[group == k], x[group == k].argmax(1), average="macro") for k in range(3)]
    assert [result.by_group[k]["f1"] for k in range(3)] == pytest.approx(values)
    assert result["f1.gap(3)"] == pytest.approx(np.ptp(values))
    x, y, group = rows()
    weight = torch.linspace(0.1, 1, 300)
    ignored = torch.where(torch.arange(300) < 30, -1, y)
    result = evaluate(nn.Identity(), (x, ignored, weight), ["recall", "recall.gap(3)"], groups=group, ignore_index=-1)
    values = []
    for k in range(3):
        member = (group == k) & (ignored >= 0)
        values.append(recall_score(y[member], x[member, 0] >= 0, sample_weight=weight[member]))
    assert [result.by_group[k]["recall"] for k in range(3)] == pytest.approx(values)
    assert result["recall.gap(3)"] == pytest.approx(np.ptp(values))


def test_several_labels_have_a_threshold_each_in_all_groups():
    x, _, group = rows(outputs=2)
    y = torch.randint(2, (300, 2), generator=torch.Generator().manual_seed(3))
    result = evaluate(nn.Identity(), (x, y), ["f1", "f1.gap(3)"], threshold="best", groups=group, task="multilabel")
    predicted = x.sigmoid().double() >= result.threshold
    values = [f1_score(y[group == k], predicted[group == k], average="macro") for k in range(3)]
    assert [result.by_group[k]["f1"] for k in range(3)] == pytest.approx(values)
    assert result["f1.gap(3)"] == pytest.approx(np.ptp(values))


def test_a_metric_at_its_own_threshold_and_a_group_of_one_class():
    x, y, group = rows()
    y = torch.where(group == 2, 0, y)
    result = evaluate(nn.Identity(), (x, y), ["best f1", "auroc"], groups=group)
    threshold = result.best_thresholds["best f1"]
    member = group == 0
    predicted = x[member, 0].sigmoid().double() >= threshold
    assert result.by_group[0]["best f1"] == pytest.approx(f1_score(y[member], predicted))
    assert math.isnan(result.by_group[2]["auroc"])


class Items(Dataset):
    def __init__(self, *parts):
        self.parts = parts

    def __len__(self):
        return len(self.parts[0])

    def __getitem__(self, number):
        return dict(zip(("x", "y", "group"), (part[number] for part in self.parts), strict=True))


def test_all_kinds_of_data_give_the_same():
    x, y, group = rows()
    expected = evaluate(nn.Identity(), (x, y), ["f1", "f1.gap(3)"], groups=group)
    for data, labels in [
        (TensorDataset(x, y), group.tolist()),
        (Items(x, y, group), None),
        (DataLoader(Items(x, y, group), batch_size=70, shuffle=True), None),
    ]:
        result = evaluate(nn.Identity(), data, ["f1", "f1.gap(3)"], groups=labels)
        assert result.values == pytest.approx(expected.values)
        assert result.by_group.keys() == expected.by_group.keys()


def test_names_of_a_gap_may_have_no_rows():
    x, y, group = rows()
    gap = metrics.recall.gap(["west", "north", "south", "east"])
    result = evaluate(nn.Identity(), (x, y), ["recall", gap], groups=NAMES[group])
    assert list(result.by_group) == ["west", "north", "south"]
    assert result[gap.name] == pytest.approx(np.ptp(recalls(x, y, group)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": "recall.gap(3)"}, "pass groups=, one label per row"),
        ({"metrics": "recall.gap(2)", "groups": rows()[2]}, r"between 2 groups, but groups has \[0, 1, 2\]"),
        ({"metrics": "recall.gap(['a', 'b', 'c'])", "groups": rows()[2]}, "between 3 groups, but groups has"),
        ({"groups": [0, 1]}, "one label per row, 300; got 2"),
        ({"metrics": "best recall.gap(3)", "groups": rows()[2]}, "no best threshold"),
        ({"metrics": ["recall.gap(3)", "f1"], "groups": rows()[2], "threshold": "best"}, "name another metric first"),
        ({"data": DataLoader(TensorDataset(*rows()[:2])), "groups": rows()[2]}, "dictionaries with 'group'"),
    ],
)
def test_wrong_groups_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        evaluate(nn.Identity(), **{"data": rows()[:2], "metrics": "f1", **settings})


@pytest.mark.parametrize("labels", [torch.arange(60) % 2, ["first", "second"] * 30], ids=["numbers", "names"])
def test_groups_may_be_part_of_the_data(labels):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 1, generator=generator), torch.arange(60) // 2 % 2
    expected = evaluate(nn.Identity(), (x, y), ["f1", "auroc"], groups=labels)
    result = evaluate(nn.Identity(), {"x": x, "y": y, "group": labels}, ["f1", "auroc"])
    assert len(result.by_group) == 2
    assert result.by_group == expected.by_group
