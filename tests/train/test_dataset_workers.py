"""A Dataset is read while the model trains, by workers if there are any, and not before."""

import os
import time

import pytest
import torch
from small_fits import network, weights_of
from torch.utils.data import Dataset

from metricfit import MetricLoss
from metricfit.losses import WeightedBCELoss
from metricfit.train import Batches, Callback, Hardware, fit
from metricfit.train.data import sources
from metricfit.train.data.sources import FromDataset

CPU, SOME = torch.device("cpu"), 32


@pytest.fixture(autouse=True)
def few_labels_before_training(monkeypatch):
    monkeypatch.setattr(sources, "SOME_LABELS", SOME)


class Slow(Dataset):
    """Items that take time, are augmented at random, and say who read them; the labels are known from items alone."""

    def __init__(self, size=60, seconds=0.0, positives=0.4):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(size, 4, generator=generator)
        self.y = (torch.rand(size, generator=generator) < positives).long()
        self.seconds, self.reads = seconds, 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, number):
        self.reads += 1
        time.sleep(self.seconds)
        return self.x[number] + 0.1 * torch.randn(4), self.y[number]


class Reads(Callback):
    """Notes how many items were read when the first step was made."""

    def __init__(self, dataset):
        self.dataset, self.at_first_step = dataset, None

    def stepped(self, step, losses):
        if self.at_first_step is None:
            self.at_first_step = self.dataset.reads


def trained(dataset, workers=0, **settings):
    settings = {
        "epochs": 3,
        "batch_size": 16,
        "lr": 0.01,
        "progress": False,
        "hardware": Hardware(accelerator="cpu", workers=workers),
    } | settings
    return fit(network(dtype=torch.float32), dataset, settings.pop("loss", WeightedBCELoss()), **settings)


def test_workers_read_the_same_batches_in_the_same_order():
    serial = trained(Slow(), validation=Slow(30), monitor="f1")
    parallel = trained(Slow(seconds=0.001), validation=Slow(30), monitor="f1", workers=2)
    assert torch.equal(weights_of(serial.model), weights_of(parallel.model))
    assert serial.history == parallel.history


class Process(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        return torch.tensor([float(os.getpid())]), number % 2


def test_workers_live_from_epoch_to_epoch():
    data = FromDataset(Process(), workers=2)
    order = [torch.tensor([0, 1]), torch.tensor([2, 3])]
    epochs = [{float(batch.x[0]) for batch in data.batches(order, CPU, seed)} for seed in (1, 2)]
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 2
    assert float(os.getpid()) not in epochs[0]


def test_an_epoch_that_was_left_early_does_not_disturb_the_next():
    data = FromDataset(Slow(), workers=1)
    order = list(torch.arange(60).split(10))
    next(data.batches(order, CPU, seed=1))
    again = [batch.index for batch in data.batches(order[3:], CPU, seed=2)]
    assert torch.equal(torch.cat(again), torch.arange(30, 60))


def test_few_items_are_read_before_the_first_step():
    dataset = Slow(200)
    reads = Reads(dataset)
    trained(dataset, epochs=1, batch_size=20, callbacks=[reads], validation=Slow(200), monitor="f1")
    assert reads.at_first_step <= SOME + 20 + 1
    assert dataset.reads == SOME + 200 + 1


def test_all_labels_are_read_where_the_order_depends_on_them():
    dataset = Slow(150)
    reads = Reads(dataset)
    trained(dataset, epochs=1, batch_size=Batches(20, stratified=True), callbacks=[reads])
    assert reads.at_first_step >= 150


def test_some_labels_give_nearly_the_same_start():
    dataset = Slow(200, positives=0.1)
    by_some, by_all = (
        fit(network(dtype=torch.float32), data, WeightedBCELoss(), epochs=1, batch_size=200, lr=1e-9, progress=False)
        .model[-1]
        .bias.item()
        for data in (dataset, (dataset.x, dataset.y))
    )
    assert by_some == pytest.approx(by_all, abs=1.0)
    assert by_all == pytest.approx(torch.logit(dataset.y.float().mean()).item(), abs=1e-5)


class Rare(Slow):
    """One positive, at an item that is not read before training."""

    def __init__(self, wrong=0, place=1):
        super().__init__(200, positives=0.0)
        self.y[place] = wrong


def test_a_rare_class_that_is_not_among_the_first_labels_is_found():
    assert len(trained(Rare(1), epochs=1, batch_size=50).history) == 1


@pytest.mark.parametrize(
    ("dataset", "settings", "message"),
    [
        (Rare(0), {}, "all training labels are 0: there is nothing to learn"),
        (Rare(3), {}, "train, batch [0-9]+: binary labels must be 0 or 1"),
        (Rare(3, place=0), {}, "train: binary labels must be 0 or 1"),
        (Rare(1), {"validation": Rare(0), "monitor": "f1"}, "the validation set has no positives"),
        (Rare(1), {"validation": Rare(3)}, "validation: binary labels must be 0 or 1"),
        (
            Rare(1),
            {"validation": Rare(0), "monitor": "best f1"},
            "validation set has no positives",
        ),
    ],
    ids=["one_class", "late", "early", "validation", "wrong_validation", "best"],
)
def test_labels_that_are_not_read_before_are_checked_on_the_way(dataset, settings, message):
    with pytest.raises(ValueError, match=message):
        trained(dataset, epochs=1, batch_size=50, **settings)


def test_a_metric_of_one_class_reads_all_labels():
    class Classes(Slow):
        def __getitem__(self, number):
            return super().__getitem__(number)[0], 2 * self.y[number]

    with pytest.raises(ValueError, match="no sample of class 1"):
        fit(network(3, dtype=torch.float32), Classes(100), MetricLoss("recall[1]"), epochs=1, progress=False)


def test_resumed_runs_compare_the_labels_they_know(tmp_path):
    settings = {"epochs": 1, "batch_size": 50, "checkpoint_dir": tmp_path}
    first = trained(Slow(100), **settings)
    again = trained(Slow(100), resume=True, **settings)
    assert torch.equal(weights_of(first.model), weights_of(again.model))
    with pytest.raises(ValueError, match="hash of labels"):
        trained(Slow(100, positives=0.5), resume=True, **settings)
