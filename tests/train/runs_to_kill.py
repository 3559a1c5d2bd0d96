"""Runs that tests kill: ``python runs_to_kill.py`` waits for orders and makes a child process for each.

Importing torch and lightning-fabric takes seconds; a child forked from a process that has them starts at once. An order
is a line of JSON, ``{"run": name, "folder": path, ...}``; the answers are the child's number and then how it ended.
"""

from __future__ import annotations

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
from metricfit.train import Callback, FitResult, Stage, fit, fit_population

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


def one_model(folder, *, callbacks=(), **settings) -> FitResult:
    """49 steps: epochs of 7, stages of 21 and 28; a checkpoint every 5 steps, and at the start of a stage."""
    usual = {"checkpoint_dir": folder, "checkpoint_every": EVERY, "resume": True} if folder else {}
    return fit(
        network(),
        data(),
        stages(),
        **{
            "validation": data(seed=1),
            "batch_size": 32,
            "seed": 3,
            "accelerator": "cpu",
            "callbacks": callbacks,
            **usual,
            **settings,
        },
    )


def population(folder, *, callbacks=(), **settings) -> list[FitResult]:
    """Three members with learning rates and stopping points of their own."""
    usual = {"checkpoint_dir": folder, "checkpoint_every": EVERY, "resume": True} if folder else {}
    return fit_population(
        [network(seed, norm=nn.LayerNorm) for seed in range(3)],
        data(),
        [replace(stage, patience=1, epochs=8) for stage in stages()],
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


class Slowly(Callback):
    """A pause after each step, so that a kill finds the run on its way."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def stepped(self, step, losses):
        time.sleep(self.seconds)


def slow_writes(seconds: float) -> None:
    """A pause between a file's last byte and its move to its place."""
    sync = os.fsync

    def slow(descriptor):
        time.sleep(seconds)
        sync(descriptor)

    os.fsync = slow


def child(order) -> None:
    """What a child does: one run."""
    if order.get("slow_writes"):
        slow_writes(order["slow_writes"])
    random.seed(os.getpid())  # the run must not depend on what it finds
    {"one_model": one_model, "population": population}[order["run"]](
        order["folder"], callbacks=[Slowly(order.get("slow_steps", 0.0))]
    )


def main() -> None:
    torch.set_num_threads(1)
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
