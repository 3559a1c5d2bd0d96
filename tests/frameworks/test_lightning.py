"""Lightning: docs/frameworks.md."""

import logging

import pytest
import torch
from sklearn.metrics import confusion_matrix, f1_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import Counts, MetricLoss, RunningCounts, metrics
from metricfit.integrations import as_torchmetrics
from metricfit.losses.accumulation import backward_in_chunks
from metricfit.metrics import Accumulator

lightning = pytest.importorskip("lightning")


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


class Classifier(lightning.LightningModule):
    def __init__(self, memory=None):
        super().__init__()
        self.network = network()
        self.loss = MetricLoss("f1", memory=memory)

    def training_step(self, batch, _):
        x, y = batch
        return self.loss(self.network(x), y)

    def on_validation_epoch_start(self):
        self.counts = []

    def validation_step(self, batch, _):
        x, y = batch
        self.counts.append(Counts.hard(self.network(x), y))

    def on_validation_epoch_end(self):
        total = sum(self.counts).sum_over_ranks()
        self.log("f1", metrics.f1(total).squeeze())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def trainer(epochs, **settings):
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


def loader(x, y, batch_size):
    return DataLoader(TensorDataset(x, y), batch_size=batch_size)


def by_hand(x, y, batch_size, epochs):
    model, loss = network(), MetricLoss("f1")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for inputs, target in zip(x.split(batch_size), y.split(batch_size), strict=True):
            optimizer.zero_grad()
            loss(model(inputs), target).backward()
            optimizer.step()
    return model


def test_training_is_that_of_a_plain_loop_and_learns(x_y):
    x, y = x_y
    module, runner = Classifier(), trainer(epochs=15)
    runner.fit(module, loader(x, y, 100), loader(x, y, 128))
    expected = by_hand(x, y, batch_size=100, epochs=15)
    for ours, theirs in zip(module.network.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    whole = metrics.f1(Counts.hard(module.network(x), y)).item()
    assert runner.callback_metrics["f1"].item() == pytest.approx(whole)
    assert whole > 0.75


def test_checkpoint_carries_the_memory(x_y, tmp_path):
    x, y = x_y
    module, runner = Classifier(RunningCounts()), trainer(epochs=1)
    runner.fit(module, loader(x, y, 100), loader(x, y, 600))
    runner.save_checkpoint(tmp_path / "last.ckpt")
    loaded = Classifier(RunningCounts())
    loaded.load_state_dict(torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"])
    torch.testing.assert_close(loaded.loss.memory.total, module.loss.memory.total)


class Logged(Classifier):
    """Logs metrics of torchmetrics, which Lightning computes over the epoch and resets."""

    def __init__(self):
        super().__init__()
        self.quality = as_torchmetrics(Accumulator("f1"))
        self.cost = as_torchmetrics(Accumulator("cost(fp=1, fn=5)", threshold=0.3))
        self.epochs = []

    def on_validation_epoch_start(self):
        pass

    def validation_step(self, batch, _):
        x, y = batch
        logits = self.network(x)
        self.quality.update(logits, y)
        self.cost.update(logits, y)
        self.log_dict({"f1": self.quality, "cost": self.cost})

    def on_validation_epoch_end(self):
        self.epochs.append(self.quality.compute().item())


def test_a_logged_accumulator_has_the_value_of_each_epoch(x_y):
    x, y = x_y
    module, runner = Logged(), trainer(epochs=3, num_sanity_val_steps=1)
    runner.fit(module, loader(x, y, 100), loader(x, y, 128))
    logits = module.network(x).detach().squeeze(1)
    logged = {name: value.item() for name, value in runner.callback_metrics.items()}
    assert logged["f1"] == pytest.approx(f1_score(y, logits >= 0), abs=1e-6)
    tn, fp, fn, tp = confusion_matrix(y, logits.sigmoid() >= 0.3).ravel()
    assert logged["cost"] == pytest.approx((fp + 5 * fn) / (tn + fp + fn + tp), abs=1e-6)
    assert len(module.epochs) == 4  # with the sanity check
    assert module.epochs[-1] == pytest.approx(logged["f1"], abs=1e-6)
    assert module.quality.total.sum() == 0


class InChunks(Classifier):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, _):
        x, y = batch
        self.optimizers().zero_grad()
        backward_in_chunks(self.network, self.loss, list(zip(x.split(32), y.split(32), strict=True)))
        self.optimizers().step()


def test_chunks_give_the_large_batch(x_y):
    x, y = x_y
    module = InChunks()
    trainer(epochs=3).fit(module, loader(x, y, 300), loader(x, y, 600))
    expected = by_hand(x, y, batch_size=300, epochs=3)
    for ours, theirs in zip(module.network.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_accumulated_batches_are_not_the_large_batch(x_y):
    x, y = x_y
    module = Classifier()
    trainer(epochs=3, accumulate_grad_batches=10).fit(module, loader(x, y, 30), loader(x, y, 600))
    expected = by_hand(x, y, batch_size=300, epochs=3)
    same = [
        torch.allclose(a, b, atol=1e-3) for a, b in zip(module.network.parameters(), expected.parameters(), strict=True)
    ]
    assert not all(same)
