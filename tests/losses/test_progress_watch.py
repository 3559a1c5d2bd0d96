"""A warning where a metric loss of several classes gets stuck in its first steps, and none in normal training."""

import copy
import warnings

import pytest
import torch
from sklearn.datasets import make_classification
from torch import nn

from metricfit import MetricLoss, RunningCounts
from metricfit.losses import Mix
from metricfit.losses.gradient_watch import STALL_AT, StalledLossWarning


def stalled(caught):
    return [str(each.message) for each in caught if each.category is StalledLossWarning]


def train(loss, start, y, lr=0.1, passes=STALL_AT):
    """Train logits themselves, one row per sample; the StalledLossWarnings of it."""
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=lr)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(passes):
            optimizer.zero_grad()
            loss(logits, y).sum().backward()
            optimizer.step()
    return stalled(caught)


def scratch(classes=10, n=200):
    generator = torch.Generator().manual_seed(0)
    return 0.3 * torch.randn(n, classes, generator=generator), torch.arange(n) % classes


@pytest.mark.parametrize("name", ["f1", "accuracy", "mcc", "jaccard"])
def test_a_loss_that_stays_where_it_started_warns_once(name):
    start, y = scratch()
    (message,) = train(MetricLoss(name), start, y, lr=1e-6, passes=3 * STALL_AT)
    assert "after 128 forward passes the loss is" in message
    assert "train with cross-entropy first" in message


def test_a_class_that_is_given_up_is_named():
    start, y = scratch()
    start[:, 4] = -30.0
    (message,) = train(MetricLoss("f1"), start, y, lr=0.02)
    assert "class 4 of 10 is hardly ever predicted" in message


@pytest.mark.parametrize("classes", [3, 10, 50])
@pytest.mark.parametrize("name", ["f1", "accuracy", "mcc"])
def test_a_loss_that_learns_does_not_warn(name, classes):
    start, y = scratch(classes)
    assert not train(MetricLoss(name), start, y)


def test_a_start_from_a_trained_model_does_not_warn():
    start, y = scratch()
    trained = start + 3 * nn.functional.one_hot(y, 10)
    assert not train(MetricLoss("f1"), trained, y, lr=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        MetricLoss("f1", memory=RunningCounts()),
        MetricLoss("fpr"),
        MetricLoss("f1", average=None),
        MetricLoss("f1", validate=False),
        MetricLoss("f1").eval(),
    ],
    ids=["memory", "lower is better", "a vector", "values not looked at", "not in training"],
)
def test_losses_that_cannot_be_judged_do_not_warn(loss):
    start, y = scratch()
    assert not train(loss, start, y, lr=1e-6)


def test_two_classes_and_several_labels_do_not_warn():
    start, y = scratch(2)
    assert not train(MetricLoss("f1"), start, y, lr=1e-6)
    start, _ = scratch()
    assert not train(MetricLoss("f1"), start, (torch.rand(start.shape) < 0.5).long(), lr=1e-6)


def test_a_copy_starts_watching_from_the_beginning():
    start, y = scratch()
    loss = MetricLoss("f1")
    assert train(loss, start, y, lr=1e-6)
    assert not train(loss, start, y, lr=1e-6)
    assert train(copy.deepcopy(loss), start, y, lr=1e-6)


def test_f1_alone_on_ten_classes_gets_stuck_and_says_so_and_a_mix_does_neither():
    """Inputs that are not scaled: logits start large, and some classes are never predicted."""
    x, y = make_classification(3000, 20, n_classes=10, n_informative=12, class_sep=1.5, random_state=0)
    x, y = 10 * torch.tensor(x, dtype=torch.float32), torch.tensor(y)

    def warned(loss):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(6):
                for batch in torch.randperm(len(x)).split(128):
                    optimizer.zero_grad()
                    loss(model(x[batch]), y[batch]).backward()
                    optimizer.step()
        return stalled(caught)

    assert warned(MetricLoss("f1"))
    assert not warned(Mix((nn.CrossEntropyLoss(), 1.0), (MetricLoss("f1"), 0.5)))
