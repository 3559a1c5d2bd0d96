"""The work of ``benchmarks.training`` with Lightning's Trainer, in a separate module because it imports Lightning."""

from __future__ import annotations

import logging
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Data = tuple[Tensor, Tensor]

for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)  # announces devices and tips at every start


class Classifier(lightning.LightningModule):
    """A module with cross-entropy, and the F1 of the validation set."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__()
        self.model, self.lr, self.loss = model, lr, nn.BCEWithLogitsLoss()
        self.counts = torch.zeros(3)

    def training_step(self, batch: Data, index: int) -> Tensor:
        """Return the loss."""
        x, y = batch
        loss: Tensor = self.loss(self.model(x).squeeze(1), y)
        return loss

    def validation_step(self, batch: Data, index: int) -> None:
        """Compute the loss and the counts."""
        x, y = batch
        logits = self.model(x).squeeze(1)
        positive = (logits >= 0).float()
        self.log("loss", self.loss(logits, y))
        self.counts += torch.stack([(positive * y).sum(), positive.sum(), y.sum()])

    def on_validation_epoch_end(self) -> None:
        """Compute the F1."""
        hits, predicted, positives = self.counts.tolist()
        self.log("f1", 2 * hits / max(1.0, predicted + positives))
        self.counts.zero_()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the default optimiser of fit."""
        return torch.optim.AdamW(self.model.parameters(), lr=self.lr)


def trained(model: nn.Module, train: Data, validation: Data, epochs: int, batch: int, lr: float) -> Any:
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    loaders = [
        DataLoader(TensorDataset(x, y.float()), batch_size=size, shuffle=shuffle)
        for (x, y), size, shuffle in ((train, batch, True), (validation, 8192, False))
    ]
    classifier = Classifier(model, lr)
    trainer.fit(classifier, *loaders)
    return trainer.callback_metrics
