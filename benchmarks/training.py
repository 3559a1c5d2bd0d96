"""An epoch of fit beside other trainers and a loop by hand, and ten models at once beside ten in a row.

The work is Mammography's in size: 7,156 rows of 6 features to train on, 1,789 to validate on, 2.3 % of them positive,
random features; the papers' network 6-32-16-1 with dropout 0.5, AdamW, cross-entropy. After each epoch all sides
compute the loss and the F1 of the validation set from one pass over it. A time is that of a whole call, including the
set-up, and is reported per epoch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bars import FIT_BATCHES
from benchmarks.tables import Line, NotMeasuredHere, Setting, Table
from benchmarks.timing import Work, interleaved_minima
from metricfit.models import mlp
from metricfit.train import Hardware, fit
from metricfit.train.engine.run import MakeLearner
from metricfit_papers.graphs import CapturedLearner
from metricfit_papers.populations import fit_population

TRAINING, VALIDATION, FEATURES = 7_156, 1_789, 6
BATCH, LR, MEMBERS = 1_024, 1e-3, 10
EPOCHS, EPOCHS_OF_TRIALS = 5, 20

Data = tuple[Tensor, Tensor]


def data(setting: Setting) -> tuple[Data, Data]:
    """Make training and validation samples whose labels are correlated with the first feature."""
    generator = torch.Generator().manual_seed(0)
    rows = setting.size(TRAINING, 200), setting.size(VALIDATION, 100)
    x = torch.randn(sum(rows), FEATURES, generator=generator)
    scores = x[:, 0] + torch.randn(sum(rows), generator=generator)
    y = (scores > scores.quantile(0.8 if setting.tiny else 0.977)).long()
    return (x[: rows[0]], y[: rows[0]]), (x[rows[0] :], y[rows[0] :])


def network() -> nn.Module:
    """Make a new network."""
    return mlp(FEATURES)


def by_fit(
    train: Data,
    validation: Data,
    epochs: int,
    batch: int = BATCH,
    device: str = "cpu",
    seed: int = 0,
) -> Any:
    """Train one model with fit."""
    return fit(
        network(),
        train,
        nn.BCEWithLogitsLoss(),
        validation=validation,
        monitor="f1",
        epochs=epochs,
        batch_size=batch,
        lr=LR,
        seed=seed,
        hardware=Hardware(accelerator="gpu" if device == "cuda" else "cpu"),
        progress=False,
    )


def by_skorch(train: Data, validation: Data, epochs: int, batch: int = BATCH) -> Any:
    """Train with skorch, which computes the F1 from the scores of its validation pass."""
    try:
        from skorch import NeuralNetBinaryClassifier
        from skorch.callbacks import EpochScoring
        from skorch.dataset import Dataset
        from skorch.helper import predefined_split
    except ImportError:
        raise NotMeasuredHere("no skorch") from None
    held_out = Dataset(validation[0].numpy(), validation[1].float().numpy())
    net = NeuralNetBinaryClassifier(
        network(),
        criterion=nn.BCEWithLogitsLoss,
        optimizer=torch.optim.AdamW,
        lr=LR,
        max_epochs=epochs,
        batch_size=batch,
        iterator_train__shuffle=True,
        train_split=predefined_split(held_out),
        callbacks=[("f1", EpochScoring("f1", lower_is_better=False))],
        callbacks__valid_acc=None,
        callbacks__print_log=None,
        verbose=0,
    )
    return net.fit(train[0].numpy(), train[1].float().numpy())


def by_lightning(train: Data, validation: Data, epochs: int, batch: int = BATCH) -> Any:
    """Train with Lightning's Trainer, without progress bar, log and checkpoints."""
    try:
        from benchmarks.lightning_loop import trained
    except ImportError:
        raise NotMeasuredHere("no Lightning") from None
    return trained(network(), train, validation, epochs, batch, LR)


def by_hand(
    train: Data,
    validation: Data,
    epochs: int,
    batch: int = BATCH,
    device: str = "cpu",
    fused: bool | None = None,
) -> Any:
    """Train with a loop written by hand that indexes tensors on their device and stores nothing."""
    model, loss = network().to(device), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=fused)
    x, y, x_held_out, y_held_out = (part.to(device) for part in (*train, *validation))
    targets, held_out = y.float(), y_held_out.float()
    for _ in range(epochs):
        model.train()
        for index in torch.randperm(len(x), device=device).split(batch):
            optimizer.zero_grad()
            loss(model(x[index]).squeeze(1), targets[index]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(x_held_out).squeeze(1)
            value, positive = float(loss(logits, held_out)), logits >= 0
            hits = float((positive * held_out).sum())
            f1 = 2 * hits / max(1.0, float(positive.sum() + held_out.sum()))
    return value, f1


def epochs_beside_each_other(
    batch: int, device: str, epochs: int = EPOCHS, fewest: int | None = None
) -> Callable[[Setting], list[Line]]:
    """Time whole calls, in seconds per epoch; skorch and Lightning only on the CPU with the larger batches."""

    def measure(setting: Setting) -> list[Line]:
        train, validation = data(setting)
        number = setting.size(epochs, 2)
        trainers: dict[str, Callable[..., Any]] = {
            "a loop by hand": partial(by_hand, device=device),
            "a loop by hand, fused AdamW": partial(by_hand, device=device, fused=True),
            "fit": partial(by_fit, device=device),
        }
        if device == "cpu" and batch == BATCH:
            trainers |= {"skorch": by_skorch, "Lightning": by_lightning}
        calls: dict[str, Work] = {
            name: lambda trainer=trainer: trainer(train, validation, number, batch)  # type: ignore[misc]
            for name, trainer in trainers.items()
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's about loaders without workers
            best, repeats = interleaved_minima(calls, device, setting, warmup=1, fewest=fewest)
        return [Line(name, seconds / number, repeats=repeats) for name, seconds in best.items()]

    return measure


def trials_on(device: str, epochs: int, fewest: int | None = None) -> Callable[[Setting], list[Line]]:
    """Time ten members, each with its split and seed, one after the other and at once, in seconds per epoch."""

    def measure(setting: Setting) -> list[Line]:
        whole, splits = trials(setting)
        number = setting.size(epochs, 2)

        def in_a_row() -> None:
            for member, (train, held_out) in enumerate(splits):
                parts = [(whole[0][numbers], whole[1][numbers]) for numbers in (train, held_out)]
                by_fit(parts[0], parts[1], number, device=device, seed=member)

        calls: dict[str, Work] = {
            "10 in a row": in_a_row,
            "10 stacked": lambda: together(whole, splits, number, device),
        }
        if device == "cuda":
            calls["10 stacked, graphs"] = lambda: together(whole, splits, number, device, CapturedLearner)
        best, repeats = interleaved_minima(calls, device, setting, warmup=1, fewest=fewest)
        return [Line(name, seconds / number, repeats=repeats) for name, seconds in best.items()]

    return measure


def trials(setting: Setting) -> tuple[Data, list[tuple[Tensor, Tensor]]]:
    """Return all samples, and the training and validation samples of each member."""
    (x, y), (x_held_out, y_held_out) = data(setting)
    whole = torch.cat([x, x_held_out]), torch.cat([y, y_held_out])
    shuffles = [torch.randperm(len(whole[0]), generator=torch.Generator().manual_seed(m)) for m in range(MEMBERS)]
    return whole, [(numbers[: len(x)], numbers[len(x) :]) for numbers in shuffles]


def together(
    whole: Data, splits: list[tuple[Tensor, Tensor]], epochs: int, device: str, learner: MakeLearner | None = None
) -> None:
    """Train ten members at once."""
    fit_population(
        [network() for _ in range(MEMBERS)],
        whole,
        nn.BCEWithLogitsLoss(),
        splits=splits,
        monitor="f1",
        epochs=epochs,
        batch_size=BATCH,
        lr=LR,
        device=device,
        make_learner=learner,
        progress=False,
    )


NETWORK = f"{TRAINING:,} x {FEATURES}, MLP 6-32-16-1"

TABLES = (
    *(
        Table(
            f"fit-{batch}",
            f"an epoch of {NETWORK}, batches of {batch:,}, CPU",
            "cpu",
            epochs_beside_each_other(batch, "cpu"),
        )
        for batch in FIT_BATCHES
    ),
    Table(
        f"fit-{BATCH}-gpu",
        f"an epoch of {EPOCHS_OF_TRIALS}, {NETWORK}, batches of {BATCH:,}, GPU",
        "cuda",
        epochs_beside_each_other(BATCH, "cuda", EPOCHS_OF_TRIALS, fewest=5),
        why_fewer="a round of whole trainings takes seconds",
    ),
    Table("population-cpu", f"an epoch of ten trials, {NETWORK}, CPU", "cpu", trials_on("cpu", EPOCHS), is_long=True),
    Table(
        "population-gpu",
        f"an epoch of ten trials of {EPOCHS_OF_TRIALS} epochs, {NETWORK}, GPU",
        "cuda",
        trials_on("cuda", EPOCHS_OF_TRIALS, fewest=3),
        why_fewer="ten trials in a row take several seconds",
    ),
)
