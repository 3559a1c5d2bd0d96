"""Small networks on tables, of several random splits at once, with the values of every look at the held-out rows.

The splits of one table have parts of equal size with equally many positives, so that their networks are one stack: one
matrix product per layer trains all of them. A network may have several *versions* of one split, such as the labels with
different noise. Members do not touch: the gradient of a member is that of its own loss, and AdamW works number by
number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metricfit_papers.datasets import Preparation, load

#: Learning rates, optimiser steps on all training rows, and looks at the held-out rows.
RATES, STEPS, LOOKS = (0.005, 0.02, 0.08, 0.3), 300, 15
DECAY = 1e-4
CREDIT_NEGATIVES = 15_000

#: Takes logits and labels ``(n, members)`` and returns the mean of the members' losses.
Loss = Callable[[Tensor, Tensor], Tensor]


class Part(NamedTuple):
    """Columns ``(splits, n, d)`` and labels ``(splits, n)``."""

    x: Tensor
    y: Tensor


class Splits(NamedTuple):
    """The three parts of several splits of one table."""

    train: Part
    validation: Part
    test: Part

    @property
    def prior(self) -> float:
        """The share of positives of the training rows, which all splits have."""
        return float(self.train.y.float().mean())


def fewer_negatives(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """All positives and ``count`` random negatives, with columns V1, V2 ... in half precision."""
    negatives = np.flatnonzero(rows["target"].to_numpy() == 0)
    if len(negatives) > count:
        chosen = np.random.default_rng(21).choice(negatives, count, replace=False)
        rows = rows.iloc[np.sort(np.concatenate([chosen, np.flatnonzero(rows["target"].to_numpy() == 1)]))]
    half = {name: np.float16 for name in rows.columns if name.startswith("V")}
    return rows.astype(half).astype(dict.fromkeys(half, np.float32)).reset_index(drop=True)


@lru_cache(maxsize=2)
def make_splits(data: Path, name: str, seeds: range, sizes: tuple[int, int, int] | None = None) -> Splits:
    """Random stratified splits, without duplicate rows: 60, 20 and 20 % of the rows, or as many rows as ``sizes`` says.

    Columns are prepared on the training rows of each split; zeros fill up splits in which more columns are constant.
    """
    table = load(name, data, verify=name != "creditcard")
    both = pd.concat([table.X.reset_index(drop=True), pd.Series(np.asarray(table.y), name="target")], axis=1)
    if name == "creditcard":  # all positives and some of the negatives, small enough to carry and to train on
        both = fewer_negatives(both, CREDIT_NEGATIVES)
    both = both.drop_duplicates(ignore_index=True)
    frame, y = both.drop(columns="target"), both["target"].to_numpy().astype(np.int64)
    per_split: list[list[tuple[np.ndarray, np.ndarray]]] = []
    for seed in seeds:
        generator = np.random.default_rng([seed, 21])
        parts: list[list[np.ndarray]] = [[], [], []]
        for label in (0, 1):
            rows = generator.permutation(np.flatnonzero(y == label))
            share = len(rows) / len(y)
            counts = [round(size * share) for size in sizes] if sizes else [len(rows) * 6 // 10, len(rows) * 2 // 10]
            ends = np.cumsum(counts)
            for place, chosen in enumerate(np.split(rows[: ends[-1]] if sizes else rows, ends[:2])):
                parts[place].append(chosen)
        places = [np.concatenate(part) for part in parts]
        preparation = Preparation().fit(frame.iloc[places[0]])
        per_split.append([(preparation.transform(frame.iloc[rows]), y[rows]) for rows in places])
    width = max(split[0][0].shape[1] for split in per_split)

    def stack(place: int) -> Part:
        x = [np.pad(split[place][0], ((0, 0), (0, width - split[place][0].shape[1]))) for split in per_split]
        return Part(torch.from_numpy(np.stack(x)), torch.from_numpy(np.stack([split[place][1] for split in per_split])))

    return Splits(*(stack(place) for place in range(3)))


class Stack:
    """Networks with one hidden layer, or linear models for ``width`` 0: ``versions`` for each of several splits."""

    def __init__(self, seeds: Sequence[int], columns: int, width: int, versions: int, prior: float) -> None:
        self.width, self.versions = width, versions
        shapes = [(columns, width), (1, width), (width, 1), (1, 1)] if width else [(columns, 1), (1, 1)]
        drawn: list[list[Tensor]] = [[] for _ in shapes]
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            for place, (rows, wide) in enumerate(shapes):
                inputs = columns if place < 2 else width
                drawn[place].append((2 * torch.rand(rows, wide, generator=generator) - 1) / math.sqrt(inputs))
        first = [torch.stack(tensors) for tensors in drawn]
        first[-1].fill_(math.log(prior / (1 - prior)))  # metricfit.fit starts at the prior too
        # Versions of one split start from the same weights and lie side by side in the last axis.
        self.weights = [
            weight.unsqueeze(2).repeat(1, 1, versions, 1).flatten(2).requires_grad_()
            if place < 2
            else weight.transpose(1, 2).repeat(1, versions, 1).requires_grad_()
            for place, weight in enumerate(first)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        """Logits ``(splits, n, versions)``."""
        hidden = torch.baddbmm(self.weights[1], x, self.weights[0])
        if not self.width:
            return hidden
        wide = hidden.relu_().unflatten(2, (self.versions, self.width))
        if self.versions == 1:
            return torch.baddbmm(self.weights[3], wide.squeeze(2), self.weights[2].transpose(1, 2))
        return (wide * self.weights[2].unsqueeze(1)).sum(-1) + self.weights[3].transpose(1, 2)


def train(
    model: Stack, part: Part, stages: Sequence[Loss], rate: float, look: Callable[[], Tensor], steps: int = STEPS
) -> list[Tensor]:
    """Train on all rows in each step; returns what ``look`` returned at the looks of the last stage.

    A ``look`` returns values ``(splits, versions, k)``. A second stage starts from the weights of the look with the
    best value 0 of each split so far.

    Args:
        model: The networks, which are trained in place.
        part: Columns, and labels ``(splits, n)`` or ``(splits, n, versions)``.
        stages: One loss per stage; all have the same number of steps.
        rate: The learning rate.
        look: Called at the looks.
        steps: Number of steps of all stages together.
    """
    y = part.y if part.y.dim() == 3 else part.y.unsqueeze(2).expand(-1, -1, model.versions)
    columns = y.transpose(0, 1).flatten(1).float()
    optimizer = torch.optim.AdamW(model.weights, lr=rate, weight_decay=DECAY, fused=True)
    looks: list[Tensor] = []
    best = torch.full((len(part.x),), -math.inf)
    kept = [weight.detach().clone() for weight in model.weights]
    for step in range(1, steps + 1):
        stage = (step - 1) * len(stages) // steps
        if stage and (step - 1) * len(stages) % steps == 0:
            with torch.no_grad():
                for weight, saved in zip(model.weights, kept, strict=True):
                    weight.copy_(saved)
            looks = []
        optimizer.zero_grad()
        logits = model(part.x).transpose(0, 1).flatten(1)
        (stages[stage](logits, columns) * columns.shape[1]).backward()
        optimizer.step()
        if step % max(1, steps // LOOKS):
            continue
        with torch.no_grad():
            looks.append(look())
            if len(stages) > 1:
                value = looks[-1][..., 0].mean(1)
                for weight, saved in zip(model.weights, kept, strict=True):
                    saved[value > best] = weight[value > best]
                best = torch.maximum(best, value)
    return looks


def f1_at(logits: Tensor, y: Tensor, threshold: Tensor | float = 0.0) -> Tensor:
    """F1 over the rows, axis 1, of logits ``(splits, n, versions)`` at thresholds ``(splits, versions)``."""
    decided = logits >= (threshold.unsqueeze(1) if isinstance(threshold, Tensor) else threshold)
    positive = y.bool()
    both = (decided & positive).sum(1)
    return 2 * both / (decided.sum(1) + positive.sum(1)).clamp(min=1)


def best_f1(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The highest F1 over the rows, axis 1, and its threshold, midway between two logits."""
    falling, order = logits.sort(dim=1, descending=True)
    both = y.expand_as(logits).gather(1, order).cumsum(1)
    called = torch.arange(1, logits.shape[1] + 1).view(1, -1, 1)
    value = 2 * both / (called + both[:, -1:])
    last = torch.ones_like(falling, dtype=torch.bool)
    last[:, :-1] = falling[:, :-1] > falling[:, 1:]  # equal logits are decided alike
    best, place = value.where(last, -1.0).max(1, keepdim=True)
    here = falling.gather(1, place)
    below = falling.gather(1, (place + 1).clamp(max=logits.shape[1] - 1))
    return best.squeeze(1), ((here + below) / 2).squeeze(1)


def flat(loss: nn.Module) -> Loss:
    """A mean over samples that is applied to all members as one batch, for losses that refuse several columns."""
    return lambda logits, y: loss(logits.flatten(), y.flatten())


def finished(path: Path, *keys: str) -> set[tuple[Any, ...]]:
    """The cells that a file of JSON lines holds already, by these entries."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {tuple(json.loads(line)[key] for key in keys) for line in lines}


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one cell to a file of JSON lines that several processes write to."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
