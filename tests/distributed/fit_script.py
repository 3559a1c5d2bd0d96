"""What test_fit_on_ranks.py runs: in its own process for one rank, and under torchrun for two.

``python -m torch.distributed.run --nproc-per-node 2 fit_script.py everything FOLDER`` writes FOLDER/RANK.pt.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, fit
from metricfit.losses import Mix, WeightedBCELoss, WMWLoss
from metricfit.train import Batches, Checkpoints, Hardware, NotFiniteError, Steps, recipes

N, FEATURES = 53, 4
RANK = int(os.environ.get("RANK", 0))
ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def data(n=N, seed=0, classes=2):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, generator=generator, dtype=torch.float64)
    noisy = x[:, 0] + 0.5 * x[:, 1] ** 2 + torch.randn(n, generator=generator, dtype=torch.float64)
    y = torch.bucketize(noisy, noisy.quantile(torch.linspace(0.6, 0.95, classes, dtype=torch.float64)[:-1]))
    return x, y, torch.rand(n, generator=generator, dtype=torch.float64) + 0.5


def model(outputs=1, dropout=0.0):
    """Of another seed on each rank, for it is rank 0's that counts."""
    torch.manual_seed(RANK)
    layers = nn.Linear(FEATURES, 6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, outputs)
    return nn.Sequential(*layers).double()


class Rows(Dataset):
    """Tells which of its rows were read."""

    def __init__(self, *columns):
        self.columns, self.targets, self.read = columns, columns[1], []

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, at):
        self.read.append(int(at))
        return tuple(column[at] for column in self.columns)


class Interrupted(WeightedBCELoss):
    """Does something to its process at the forward pass of a given number."""

    todo: dict = {}  # noqa: RUF012
    passes = 0

    def forward(self, logits, target, weight=None):
        value = super().forward(logits, target, weight)
        if self.training:
            Interrupted.passes += 1
            value = Interrupted.todo.get(Interrupted.passes, lambda value: value)(value)
        return value

    @classmethod
    def plan(cls, **todo):
        cls.passes, cls.todo = 0, {int(at.removeprefix("at_")): done for at, done in todo.items()}


def interrupt(value):
    raise KeyboardInterrupt


def kill(value):
    os.kill(os.getpid(), signal.SIGKILL)


def calm(logits, target):
    """Not a mean over samples, and so nothing that ranks could average."""
    return logits.std() - 0.5


def constrained():
    ranking = RankingConstraint(margin=0.5, size=N, normalize=True)
    return AugmentedLagrangian(Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5)), ["recall >= 0.95", ranking])


#: The objective, and what fit is told besides.
def held_out_multipliers():
    requirements = ["recall >= 0.99", "recall.gap(2) <= 0.01", "selection_rate == 0.3"]
    return AugmentedLagrangian(WeightedBCELoss(), requirements, mu=0.5, update_on="held_out")


CASES = {
    "bce": (WeightedBCELoss, {}),
    "f1 with memory": (lambda: MetricLoss("f1", memory=RunningCounts()), {}),
    "mix": (lambda: Mix((WeightedBCELoss(), 1.0), (MetricLoss("mcc"), 0.5)), {}),
    "pairs": (WMWLoss, {}),
    "constrained": (constrained, {"monitor": "f1"}),
    "held-out multipliers": (
        held_out_multipliers,
        {"kind": lambda x, y: {"x": x, "y": y, "group": torch.arange(len(x)) % 2}},
    ),
    "constraint by a function": (lambda: AugmentedLagrangian(WeightedBCELoss(), calm), {}),
    "torch's loss": (nn.BCEWithLogitsLoss, {}),
    "torch's loss in a mix": (
        lambda: Mix((nn.BCEWithLogitsLoss(), 1.0), (MetricLoss("f1", memory=RunningCounts()), 0.5)),
        {},
    ),
    "torch's classes of unequal weight": (
        lambda: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)),
        {"outputs": 3},
    ),
    "weights": (lambda: Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5)), {"weighted": True}),
    "accumulate": (lambda: MetricLoss("f1", memory=RunningCounts()), {"steps": Steps(accumulate=3)}),
    "accumulate torch's": (nn.BCEWithLogitsLoss, {"steps": Steps(accumulate=2)}),
    "clip": (WeightedBCELoss, {"steps": Steps(clip=0.05)}),
    "averaged weights": (WeightedBCELoss, {"steps": Steps(ema=0.9), "monitor": ["best f1", "loss", "auroc"]}),
    "stratified": (lambda: MetricLoss("f1"), {"batch_size": Batches(5, stratified=True, oversample=0.4)}),
    "stopped": (WeightedBCELoss, {"monitor": "best f1", "patience": 2, "epochs": 30, "lr": 0.3}),
    "stages": (lambda: recipes.constrained("precision", "recall >= 0.8", lr=0.05), {"epochs": 3}),
    "batches of one": (lambda: MetricLoss("f1", memory=RunningCounts()), {"batch_size": 1, "epochs": 2}),
    "batches of one in parts": (WeightedBCELoss, {"batch_size": 1, "epochs": 2, "steps": Steps(accumulate=2)}),
    "batches of one, torch's": (nn.BCEWithLogitsLoss, {"batch_size": 1, "epochs": 2}),
    "one to validate on": (WeightedBCELoss, {"held_out": 1}),
    "dataset": (lambda: MetricLoss("f1"), {"kind": Rows}),
    "dataset, batches of one": (WeightedBCELoss, {"kind": Rows, "batch_size": 1, "epochs": 2}),
}


def loader(rows, batch_size=11, **settings):
    return DataLoader(rows, batch_size, **({"shuffle": True} | settings))


def run(name, **fabric):
    """A case's history, weights and what its objective has learned, and the rows read."""
    make, told = CASES[name]
    told = {"epochs": 4, "batch_size": 11, "lr": 0.03, **told}
    kind, outputs = told.pop("kind", lambda *given: given), told.pop("outputs", 1)
    parts = 3 if told.pop("weighted", False) else 2
    train = kind(*data(classes=max(2, outputs))[:parts])
    held_out = kind(*data(told.pop("held_out", 31), seed=1, classes=max(2, outputs))[:parts])
    result = fit(
        model(outputs),
        train,
        make(),
        validation=held_out,
        hardware=Hardware(accelerator="cpu", **fabric),
        progress=False,
        **told,
    )
    rows = getattr(train, "dataset", train)
    return {
        "rows": result.history.rows,
        "weights": result.model.state_dict(),
        "learned": result.objective.state_dict(),
        "best": (result.best, result.threshold),
        "read": rows.read if isinstance(rows, Rows) else None,
    }


def with_dropout(folder, resume=True, **fabric):
    """17 samples in 3 steps, 4 epochs, a checkpoint every 2 steps; what is random differs from rank to rank."""
    x, y, _ = data(17)
    return fit(
        model(dropout=0.5),
        (x, y),
        Interrupted(),
        validation=data(31, seed=1)[:2],
        epochs=4,
        batch_size=6,
        lr=0.03,
        seed=3,
        hardware=Hardware(accelerator="cpu", **fabric),
        progress=False,
        checkpoint_dir=folder and Checkpoints(folder, 2),
        resume=resume,
    )


def told_of(result):
    return {"rows": result.history.rows, "weights": result.model.state_dict(), "best": result.best}


def broken_off(folder, at):
    """The run with dropout, interrupted on all ranks, and gone on with."""
    Interrupted.plan(**{f"at_{at}": interrupt})
    with contextlib.suppress(KeyboardInterrupt):
        with_dropout(folder, devices=2)
        raise AssertionError("was not interrupted")
    Interrupted.plan()
    return told_of(with_dropout(folder, devices=2))


def refused(folder):
    """A folder that holds another run: told to every rank, not only to the one that looks."""
    try:
        fit(
            model(),
            data()[:2],
            WeightedBCELoss(),
            hardware=Hardware(accelerator="cpu", devices=2),
            checkpoint_dir=folder,
            epochs=1,
        )
    except FileExistsError as error:
        return str(error)


def not_finite():
    Interrupted.plan(at_5=lambda value: value * float("nan"))
    try:
        fit(
            model(), data()[:2], Interrupted(), hardware=Hardware(accelerator="cpu", devices=2), batch_size=20, epochs=3
        )
    except NotFiniteError as error:
        return str(error)
    finally:
        Interrupted.plan()


def shown():
    with contextlib.redirect_stderr(io.StringIO()) as told:
        fit(
            model(),
            data()[:2],
            WeightedBCELoss(),
            hardware=Hardware(accelerator="cpu", devices=2),
            epochs=2,
            progress=True,
        )
    return told.getvalue()


def shared_out_by_the_user():
    """A loader with a DistributedSampler: the rows that this rank read in each of two epochs."""
    rows = Rows(*data()[:2])
    sampler = DistributedSampler(rows, shuffle=True)
    result = fit(
        model(),
        loader(rows, 8, shuffle=False, sampler=sampler),
        WeightedBCELoss(),
        epochs=2,
        hardware=Hardware(devices=2),
    )
    half = len(rows.read) // 2
    return {"epochs": [rows.read[:half], rows.read[half:]], "weights": result.model.state_dict()}


def cannot_be_shared():
    try:
        fit(model(), loader(Rows(*data()[:2]), 8), WeightedBCELoss(), epochs=1, hardware=Hardware(devices=2))
    except ValueError as error:
        return str(error)


def without_being_told():
    """No devices=: what torchrun has started counts."""
    result = fit(model(), data()[:2], WeightedBCELoss(), epochs=1, hardware=Hardware(accelerator="cpu"), progress=False)
    return result.model.state_dict()


def wrongly_told():
    try:
        fit(model(), data()[:2], WeightedBCELoss(), epochs=1, hardware=Hardware(accelerator="cpu", devices=3))
    except ValueError as error:
        return str(error)


def cases(folder):
    settings = {"devices": 2, "strategy": "ddp"}
    found = {name: run(name, **settings) for name in CASES}
    mine = folder / f"rank{RANK}"  # a folder for each rank, as on machines that share no disk
    found["whole"] = told_of(with_dropout(mine / "whole", **settings))
    found["broken off"] = {at: broken_off(mine / f"broken-{at}", at) for at in (1, 6, 8)}
    found["finished"] = told_of(with_dropout(mine / "whole", **settings))
    found["refused"] = refused(mine / "whole")
    found["not finite"] = not_finite()
    found["shown"] = shown()
    found["shared out"] = shared_out_by_the_user()
    found["cannot"] = cannot_be_shared()
    found["untold"], found["wrongly told"] = without_being_told(), wrongly_told()
    return found


def killed(folder, first=1, last=None):
    """Rank 1 is killed in its 5th step; of ``killed_twice`` after the restart rank 0 as well, in its 4th."""
    if ATTEMPT == "0" and first == RANK:
        Interrupted.plan(at_5=kill)
    if ATTEMPT == "1" and last == RANK:
        Interrupted.plan(at_4=kill)
    found = told_of(with_dropout(folder / "run", devices=2))
    Interrupted.plan()
    return {**found, "attempt": int(ATTEMPT)}


def killed_twice(folder):
    return {"killed": killed(folder, last=0)}


def everything(folder):
    """A run with a rank that is killed, and after the restart all cases: starting the processes takes seconds."""
    return {"killed": killed(folder), **cases(folder / "cases")}


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    result = {"everything": everything, "killed_twice": killed_twice}[sys.argv[1]](folder)
    torch.save(result, folder / f"{RANK}.pt")
