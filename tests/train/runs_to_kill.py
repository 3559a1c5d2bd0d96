"""Runs that tests kill: ``python runs_to_kill.py`` waits for orders and forks a child process for each of them.

Importing torch and lightning-fabric takes seconds; a child of a process that has imported them starts at once. An order
is a line of JSON, ``{"run": name, "folder": path, ...}``; the answers are the child's process id and then how it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
import traceback
from dataclasses import replace

import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, steps
from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Checkpoints, FitResult, Hardware, Monitor, Stage, fit
from metricfit.train.checkpoint.folder import RunFolder
from metricfit_papers.populations import fit_population

SAMPLES, EVERY = 200, 5


def data(samples=SAMPLES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator)
    noise = torch.randn(samples, generator=generator)
    return x, (x[:, 0] + x[:, 1] ** 2 + noise > 1.5).long()


def network(seed=0, width=16, norm=nn.BatchNorm1d):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, width), norm(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 1))


def stages():
    """Cross-entropy, then all that keeps state: multipliers of two kinds, a memory, an annealed step, a schedule."""
    metric = MetricLoss("f1", step=steps.Annealed(steps.Identity(), steps.Sigmoid(k=10)), memory=RunningCounts())
    constraints = ["recall >= 0.9", RankingConstraint(size=SAMPLES, normalize=True)]
    lagrangian = AugmentedLagrangian(metric, constraints, mu=0.5)

    def halved(optimizer):
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.5)

    return [
        Stage(WeightedBCELoss(), name="bce", epochs=3, lr=0.01, scheduler=halved),
        Stage(lagrangian, name="constrained", epochs=4, lr=0.003, monitor="best f1", scheduler=halved),
    ]


def one_model(folder, *, every=EVERY, callbacks=(), **settings) -> FitResult:
    """49 steps: epochs of 7, stages of 21 and 28; a checkpoint every 5 steps, and at the start of a stage."""
    usual = {"checkpoint_dir": Checkpoints(folder, every), "resume": True} if folder else {}
    return fit(
        network(),
        data(),
        stages(),
        **{
            "validation": data(seed=1),
            "batch_size": 32,
            "seed": 3,
            "hardware": Hardware(accelerator="cpu"),
            "callbacks": callbacks,
            **usual,
            **settings,
        },
    )


def population(folder, *, every=EVERY, callbacks=(), **settings) -> list[FitResult]:
    """Three members with learning rates and stopping points of their own.

    The monitor's requirement, which is easily met, decides in place of the objective's, whose violation falls in every
    epoch: no member would stop early.
    """
    monitor = Monitor("f1", threshold="best", subject_to="recall >= 0.1")
    usual = {"checkpoint_dir": Checkpoints(folder, every), "resume": True} if folder else {}
    return fit_population(
        [network(seed, norm=nn.LayerNorm) for seed in range(3)],
        data(),
        [replace(stage, patience=1, epochs=8, monitor=stage.monitor and monitor) for stage in stages()],
        **{
            "validation": data(seed=1),
            "lr": [0.03, 0.01, 0.003],
            "batch_size": 32,
            "device": "cpu",
            "callbacks": callbacks,
            **usual,
            **settings,
        },
    )


class Pause(Callback):
    """Sleeps after each step, and waits to be killed once the run has made ``hold_at`` steps.

    Without the wait a test would have to win a race against the run, which it loses on a busy machine.
    """

    def __init__(self, folder: str, seconds: float, hold_at: int | None) -> None:
        self.folder, self.seconds, self.hold_at = RunFolder(folder), seconds, hold_at

    def stepped(self, step, losses):
        if self.hold_at is not None and self.folder.steps_made >= self.hold_at:
            wait_to_be_killed()
        time.sleep(self.seconds)


def wait_to_be_killed() -> None:
    time.sleep(600)
    raise TimeoutError("nobody killed this run")


def hold_writes(folder: RunFolder, steps_made: int, existing: str) -> None:
    """Makes a write wait to be killed before it is synced, after so many steps and if a file of that name exists."""
    sync = os.fsync

    def held_sync(descriptor):
        if folder.steps_made >= steps_made and any(folder.path.glob(existing)):
            wait_to_be_killed()
        sync(descriptor)

    os.fsync = held_sync


def child(order) -> None:
    """Trains one run, as ordered."""
    folder = order["folder"]
    if "hold_writes" in order:
        hold_writes(RunFolder(folder), **order["hold_writes"])
    random.seed(os.getpid())  # the run must not depend on the state that it finds
    pause = Pause(folder, order.get("slow_steps", 0.0), order.get("hold_at"))
    {"one_model": one_model, "population": population}[order["run"]](folder, callbacks=[pause])


def main() -> None:
    importlib.import_module("lightning_fabric")  # once, here, and not in every child
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        number = os.fork()
        if number == 0:
            status = 1
            try:
                child(json.loads(line))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(json.dumps(number), flush=True)
        _, status = os.waitpid(number, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


if __name__ == "__main__":
    main()
