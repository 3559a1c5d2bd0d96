"""Rows 6 and 7: an epoch of fit against one of skorch, and ten models at once against ten in a row.

Steps that are replayed from CUDA graphs are compared with steps that Python makes.

The work is Mammography's in size: 7,156 rows of 6 features to train on, 1,789 to validate on, 2.3 % of them positive,
random features; batches of 1,024, the papers' network 6-32-16-1 with dropout 0.5, AdamW, cross-entropy. After each
epoch both sides compute the loss and the F1 of the validation set from one pass over it. A time is that of a whole
call, including the set-up, and is reported per epoch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.rows import Measurement, NotMeasuredHere, Peer, PeerGroup, Row, Setting, at_least
from benchmarks.timing import Work, interleaved_minima
from metricfit.models import mlp
from metricfit.train import fit, fit_population

TRAINING, VALIDATION, FEATURES = 7_156, 1_789, 6
BATCH, LR, MEMBERS = 1_024, 1e-3, 10
EPOCHS, REPLAYED_EPOCHS = 10, 100

Data = tuple[Tensor, Tensor]


def data(setting: Setting) -> tuple[Data, Data]:
    """Make training and validation samples whose labels are correlated with the first feature."""
    generator = torch.Generator().manual_seed(0)
    rows = setting.size(TRAINING, 200), setting.size(VALIDATION, 100)
    x = torch.randn(sum(rows), FEATURES, generator=generator)
    scores = x[:, 0] + torch.randn(sum(rows), generator=generator)
    y = (scores > scores.quantile(0.8 if setting.quick else 0.977)).long()
    return (x[: rows[0]], y[: rows[0]]), (x[rows[0] :], y[rows[0] :])


def network() -> nn.Module:
    """Make a new network."""
    return mlp(FEATURES)


def by_fit(train: Data, validation: Data, epochs: int, device: str = "cpu", seed: int = 0) -> Any:
    """Train one model with fit."""
    return fit(
        network(),
        train,
        nn.BCEWithLogitsLoss(),
        validation=validation,
        monitor="f1",
        epochs=epochs,
        batch_size=BATCH,
        lr=LR,
        seed=seed,
        accelerator="gpu" if device == "cuda" else "cpu",
        progress=False,
    )


def by_skorch(train: Data, validation: Data, epochs: int) -> Any:
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
        batch_size=BATCH,
        iterator_train__shuffle=True,
        train_split=predefined_split(held_out),
        callbacks=[("f1", EpochScoring("f1", lower_is_better=False))],
        callbacks__valid_acc=None,
        callbacks__print_log=None,
        verbose=0,
    )
    return net.fit(train[0].numpy(), train[1].float().numpy())


def by_lightning(train: Data, validation: Data, epochs: int) -> Any:
    """Train with Lightning's Trainer, without progress bar, log and checkpoints."""
    try:
        from benchmarks.lightning_loop import trained
    except ImportError:
        raise NotMeasuredHere("no Lightning") from None
    return trained(network(), train, validation, epochs, BATCH, LR)


def by_hand(train: Data, validation: Data, epochs: int) -> Any:
    """Train with a loop written by hand that indexes tensors and stores nothing."""
    model, loss = network(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    (x, y), (x_held_out, y_held_out) = train, validation
    targets, held_out = y.float(), y_held_out.float()
    for _ in range(epochs):
        model.train()
        for index in torch.randperm(len(x)).split(BATCH):
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


def an_epoch(works: dict[str, Callable[..., Any]], setting: Setting) -> tuple[dict[str, float], int]:
    """Measure the seconds per epoch of each."""
    train, validation = data(setting)
    epochs = setting.size(EPOCHS, 2)
    calls: dict[str, Work] = {
        name: lambda work=work: work(train, validation, epochs)  # type: ignore[misc]
        for name, work in works.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's about loaders without workers
        best, repeats = interleaved_minima(calls, "cpu", setting, warmup=1)
    return {name: seconds / epochs for name, seconds in best.items()}, repeats


def against_skorch(setting: Setting) -> Measurement:
    """Measure the seconds per epoch of fit and of skorch."""
    best, repeats = an_epoch({"ours": by_fit, "skorch": by_skorch}, setting)
    return Measurement(best["ours"], best["skorch"], repeats=repeats)


def loops_beside_each_other(setting: Setting) -> list[Peer]:
    """Time the same epoch with other trainers."""
    works = {"fit": by_fit, "skorch": by_skorch, "Lightning": by_lightning, "a loop by hand": by_hand}
    best, repeats = an_epoch(works, setting)
    return [Peer(name, seconds, repeats=repeats) for name, seconds in best.items()]


def together_against_in_a_row(device: str) -> Callable[[Setting], Measurement]:
    """Measure the seconds of ten members, each with its split and seed, at once and one after the other."""

    def measure(setting: Setting) -> Measurement:
        whole, splits = trials(setting)
        epochs = setting.size(EPOCHS, 2)

        def in_a_row() -> None:
            for member, (train, held_out) in enumerate(splits):
                parts = [(whole[0][numbers], whole[1][numbers]) for numbers in (train, held_out)]
                by_fit(parts[0], parts[1], epochs, device, seed=member)

        calls: dict[str, Work] = {"ours": lambda: together(whole, splits, epochs, device), "row": in_a_row}
        best, repeats = interleaved_minima(calls, device, setting, warmup=1)
        return Measurement(best["ours"] / epochs, best["row"] / epochs, repeats=repeats)

    return measure


def replayed_against_made(setting: Setting) -> Measurement:
    """Measure the seconds of ten members at once, with captured steps and with steps launched by Python."""
    whole, splits = trials(setting)
    epochs = setting.size(REPLAYED_EPOCHS, 2)
    calls: dict[str, Work] = {
        "ours": lambda: together(whole, splits, epochs, "cuda", cuda_graphs=True),
        "launched": lambda: together(whole, splits, epochs, "cuda"),
    }
    best, repeats = interleaved_minima(calls, "cuda", setting, warmup=1)
    return Measurement(best["ours"] / epochs, best["launched"] / epochs, repeats=repeats)


def trials(setting: Setting) -> tuple[Data, list[tuple[Tensor, Tensor]]]:
    """Return all samples, and the training and validation samples of each member."""
    (x, y), (x_held_out, y_held_out) = data(setting)
    whole = torch.cat([x, x_held_out]), torch.cat([y, y_held_out])
    shuffles = [torch.randperm(len(whole[0]), generator=torch.Generator().manual_seed(m)) for m in range(MEMBERS)]
    return whole, [(numbers[: len(x)], numbers[len(x) :]) for numbers in shuffles]


def together(
    whole: Data, splits: list[tuple[Tensor, Tensor]], epochs: int, device: str, cuda_graphs: bool = False
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
        cuda_graphs=cuda_graphs,
        progress=False,
    )


AN_EPOCH = f"{TRAINING:,} x {FEATURES}, batches of {BATCH:,}, MLP 6-32-16-1"
TRIALS = "10 stacked trials v 10 in a row"

ROWS = (
    Row("fit-v-skorch", f"fit v skorch, an epoch of {AN_EPOCH}, CPU", "cpu", at_least(2.5), against_skorch),
    Row("population-cpu", f"{TRIALS}, {AN_EPOCH}, CPU", "cpu", at_least(1.3), together_against_in_a_row("cpu")),
    Row("population-gpu", f"{TRIALS}, {AN_EPOCH}, GPU", "cuda", at_least(5.0), together_against_in_a_row("cuda")),
    Row(
        "graphs-gpu",
        f"10 stacked trials, {REPLAYED_EPOCHS} epochs, steps replayed v made, {AN_EPOCH}, GPU",
        "cuda",
        at_least(2.0),
        replayed_against_made,
    ),
)

PEERS = (PeerGroup("fit-peers", f"an epoch of {AN_EPOCH}, CPU", "cpu", loops_beside_each_other),)
