"""Validation from sums over batches gives what all logits together give, and keeps no logits."""

import weakref

import pytest
import torch
from small_fits import data, network, trained
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RunningCounts, losses
from metricfit.steps import Annealed, Linear, Sigmoid
from metricfit.train import Monitor
from metricfit.train.data.batches import Batch
from metricfit.train.engine import validation
from metricfit.train.engine.validation import LossOfSums, split_loss
from metricfit.train.monitor import MonitorStream
from metricfit.train.stage import match_shapes

DRAWN = torch.Generator().manual_seed(0)
BINARY = torch.randn(100, 1, generator=DRAWN), torch.randint(2, (100,), generator=DRAWN)
CLASSES = torch.randn(100, 4, generator=DRAWN), torch.randint(4, (100,), generator=DRAWN)
PIXELS = torch.randn(20, 4, 3, 3, generator=DRAWN), torch.randint(4, (20, 3, 3), generator=DRAWN)
SHARES = CLASSES[0], torch.rand(100, 4, generator=DRAWN).softmax(1)
LABELS = CLASSES[0], torch.randint(2, (100, 4), generator=DRAWN)
CLASS_WEIGHT = torch.tensor([1.0, 2.0, 0.5, 3.0])

LOSSES = {
    "torchs_bce": (lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0)), BINARY),
    "cross_entropy": (nn.CrossEntropyLoss, CLASSES),
    "weighted_cross_entropy": (lambda: nn.CrossEntropyLoss(CLASS_WEIGHT, ignore_index=2, label_smoothing=0.1), PIXELS),
    "cross_entropy_of_shares": (nn.CrossEntropyLoss, SHARES),
    "bce": (losses.WeightedBCELoss, BINARY),
    "focal": (lambda: losses.FocalLoss(2.0), LABELS),
    "f1": (lambda: MetricLoss("f1"), BINARY),
    "macro": (lambda: MetricLoss("f1"), PIXELS),
    "images": (lambda: MetricLoss("jaccard", per_image=True, ignore_index=3), PIXELS),
    "memory": (lambda: MetricLoss("mcc", memory=RunningCounts()), BINARY),
    "mix": (lambda: losses.Mix((nn.CrossEntropyLoss(), 1.0), (MetricLoss("f1"), 0.5)), PIXELS),
}


def in_parts(logits, y, weight=None):
    sizes = [1, 2, len(y) - 3]
    weights = [None] * 3 if weight is None else weight.split(sizes)
    return zip(logits.split(sizes), map(Batch, [None] * 3, y.split(sizes), weights), strict=True)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_sums_is_the_loss_of_all_samples(name):
    make, (logits, y) = LOSSES[name]
    loss = make().eval()
    total = LossOfSums(split_loss(loss))
    for part, batch in in_parts(logits, y):
        total.add(part, batch)
    shaped = (logits.squeeze(1), y.float()) if logits.shape[1] == 1 else (logits, y if y.dim() != 2 else y.float())
    assert total.value() == pytest.approx(float(loss(*shaped)), abs=1e-6)


def test_weights_of_samples_count():
    weight = torch.rand(100, generator=DRAWN)
    for loss in (losses.WeightedBCELoss(), losses.Mix((losses.WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5))):
        total = LossOfSums(split_loss(loss.eval()))
        for part, batch in in_parts(*BINARY, weight):
            total.add(part, batch)
        assert total.value() == pytest.approx(float(loss(BINARY[0].squeeze(1), BINARY[1], weight)), abs=1e-6)


class Overridden(losses.WeightedBCELoss):
    def forward(self, logits, target, weight=None):
        return 2 * super().forward(logits, target, weight)


@pytest.mark.parametrize(
    "loss",
    [
        losses.WMWLoss(),
        Overridden(),
        nn.BCEWithLogitsLoss(reduction="sum"),
        losses.Mix((nn.BCEWithLogitsLoss(), 1.0), (losses.PairHingeLoss(), 1.0)),
        AugmentedLagrangian(losses.WeightedBCELoss(), "recall >= 0.9"),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_other_losses_are_not_split(loss):
    assert split_loss(loss) is None


@pytest.mark.parametrize(
    ("monitor", "samples"),
    [
        (Monitor("f1", subject_to="recall >= 0.9"), BINARY),
        (Monitor("mcc", threshold=0.3), BINARY),
        (Monitor("f1", average="weighted", ignore_index=1), PIXELS),
        (Monitor("weighted_kappa(power=2)"), CLASSES),
        (Monitor("f1", task="multilabel"), LABELS),
    ],
    ids=lambda part: part.name if isinstance(part, Monitor) else "",
)
def test_a_monitor_of_counts_measures_all_samples(monitor, samples):
    counted = MonitorStream(monitor)
    for part, batch in in_parts(*samples):
        counted.add(*match_shapes(part, batch.y), batch.weight)
    logits, y = samples
    expected = monitor.measure(logits.squeeze(1) if logits.shape[1] == 1 else logits, y)
    assert str(counted.measure()) == str(expected)  # NaN equals NaN


def single():
    return network(dtype=torch.float32)


def keep_first_few(monkeypatch, at_once):
    """Evaluate a few samples at a time, and keep weak references to their logits."""
    seen, compute = [], validation.drop_uncounted
    monkeypatch.setattr(validation, "count_samples_at_once", lambda sample, at_least: at_once)

    def note(logits, batch):
        seen.append(weakref.ref(logits))
        alive.append(sum(reference() is not None for reference in seen))
        return compute(logits, batch)

    alive: list[int] = []
    monkeypatch.setattr(validation, "drop_uncounted", note)
    return alive


@pytest.mark.parametrize("monitor", ["loss", "f1"])
def test_fit_keeps_the_logits_of_one_batch(monitor, monkeypatch):
    loss = MetricLoss("f1", step=Annealed(Sigmoid(2), Linear(0.1)))
    whole = trained(loss, model=single(), validation=data(90), monitor=monitor)
    alive = keep_first_few(monkeypatch, 7)
    streamed = trained(loss, model=single(), validation=data(90), monitor=monitor)
    assert len(alive) == 4 * 13
    assert max(alive) <= 2  # the last batch's name is still bound while the next one is computed
    for column in ("train_loss", "validation_loss", "value", "best"):
        assert streamed.history[column] == pytest.approx(whole.history[column], abs=1e-6)


def test_scores_are_kept_where_thresholds_need_them(monkeypatch):
    whole = trained(nn.BCEWithLogitsLoss(), model=single(), validation=data(90), monitor="best f1")
    alive = keep_first_few(monkeypatch, 30)
    streamed = trained(nn.BCEWithLogitsLoss(), model=single(), validation=data(90), monitor="best f1")
    assert max(alive) == 3
    assert streamed.history["value"] == pytest.approx(whole.history["value"])
