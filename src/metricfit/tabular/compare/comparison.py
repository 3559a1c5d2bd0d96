"""compare: every method on identical folds, with intervals, paired tests and a verdict in plain words."""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit.core.counts import Counts
from metricfit.data import folds
from metricfit.metrics import get_metric, parse_requirement
from metricfit.runs import cells
from metricfit.runs.backends import check, threads_each
from metricfit.tabular.compare.effort import shared_effort, threads
from metricfit.tabular.compare.methods import DEFAULT, Method, load_training, methods, train
from metricfit.tabular.compare.standings import Row, standings
from metricfit.tabular.compare.verdict import advise


@dataclass(frozen=True)
class Comparison:
    """Methods, best first; the verdict; and the default method's scores of every row, out of sample.

    Attributes:
        rows: one per method.
        verdict: what to do, in a few sentences.
        scores: the default method's scores, each by the model that had not seen the row.
        threshold: the mean of the default's thresholds over folds; None where no fold has a finite one.
        effort: network, epochs at most and members, the same for every network and fold.
        histories: the default method's losses by epoch, a list for each member of each fold.
        recommended: the name of the recommended method.
    """

    metric: str
    rows: list[Row]
    verdict: str
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    threshold: float | None
    effort: Mapping[str, Any] = field(default_factory=dict)
    histories: Sequence[Sequence[Mapping[str, Any]]] = ()
    recommended: str | None = None


def compare(
    X: pd.DataFrame,
    y: NDArray[np.int64],
    metric: str,
    folder: str | os.PathLike[str],
    *,
    name: str = "table",
    subject_to: Sequence[str] = (),
    groups: Any = None,
    parts: int = 5,
    seed: int = 0,
    jobs: int = 1,
    backend: str = "loky",
    watch: cells.Watch | None = None,
    **settings: Any,
) -> Comparison:
    """Train every method on all folds but one, and judge it on that one; finished cells are read from the folder.

    Args:
        X: the table.
        y: labels, 1 for the positive class.
        metric: what is judged, by name.
        folder: where the cells are kept.
        name: of the table.
        subject_to: requirements on every method's threshold.
        groups: rows of one group are on one side of a split, as copies of a row are.
        parts: how many folds.
        seed: of the folds and of every method.
        jobs: cells at a time.
        backend: joblib's.
        watch: called after every cell.
        settings: of MetricClassifier, such as network, members and time_budget.
    """
    check(jobs, backend)
    several = methods(bool(subject_to))
    on = _Task(X, y, groups, folds(X, y, parts, seed=seed, groups=groups), {each.name: each for each in several})
    spec: dict[str, Any] = {"data": _fingerprint(X, y, groups), "metric": metric, "subject_to": list(subject_to)}
    spec |= {"parts": parts, "seed": seed}
    if subject_to:  # cells of version 0.1.0 have no value where the requirements could not be met
        spec["if_not_reachable"] = "nearest threshold"
    first = cells.Cell((name, "effort"), spec | settings)
    with threads(threads_each(jobs)):
        effort = cells.run([first], on.plan, folder)[first.name]["effort"]
    same = settings | effort | {"time_budget": None}
    every = [cells.Cell((name, each.name, f"fold {at}"), spec | same) for each in several for at in range(parts)]
    found = cells.run(every, on.judge, folder, jobs=jobs, backend=backend, prepare=load_training, watch=watch)
    reports = {each.name: [found[name, each.name, f"fold {at}"] for at in range(parts)] for each in several}
    rows = standings(reports, get_metric(metric))
    scores = np.full(len(y), np.nan)
    thresholds, histories = [], []
    for (_, part), of_fold in zip(on.outer, reports[DEFAULT], strict=True):
        scores[part] = of_fold["scores"]
        if of_fold["threshold"] is not None:
            thresholds.append(of_fold["threshold"])
        histories += of_fold.get("histories", [])  # cells from before they were kept have none
    advice = advise(rows, metric, required=bool(subject_to))
    threshold = statistics.fmean(thresholds) if thresholds else None
    return Comparison(metric, rows, advice.text, scores, y, threshold, effort, histories, advice.row.name)


@dataclass(frozen=True)
class _Task:
    """What every cell works on."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    groups: Any
    outer: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
    by_name: Mapping[str, Method]

    def plan(self, cell: cells.Cell) -> dict[str, Any]:
        """The effort for all networks, decided on the first fold's training rows."""
        rest, _ = self.outer[0]
        return {
            "effort": shared_effort(
                list(self.by_name.values()), self.X.iloc[rest], self.y[rest], **self._how(cell, rest)
            )
        }

    def judge(self, cell: cells.Cell) -> dict[str, Any]:
        """A method, trained on all folds but one and judged on that one.

        Where no threshold meets the requirements on the training rows, the threshold nearest to them decides, and the
        report says what was reachable.
        """
        _, method_name, fold = cell.name
        method = self.by_name[method_name]
        rest, part = self.outer[int(fold.removeprefix("fold "))]
        began = time.perf_counter()
        fitted = train(method, self.X.iloc[rest], self.y[rest], **self._how(cell, rest))
        found: dict[str, Any] = {"values": {}, "held": {}, "training_seconds": time.perf_counter() - began}
        # Without a finite threshold nothing is called positive.
        found["threshold"] = fitted.threshold if math.isfinite(fitted.threshold) else None
        if fitted.not_reachable is not None:
            found["not_reachable"] = {method.name: fitted.not_reachable}
        thresholds = {method.name: fitted.threshold}
        if method.at_half is not None:
            thresholds[method.at_half] = 0.5
        scores, truth = fitted.scores(self.X.iloc[part]), torch.from_numpy(self.y[part])
        for called, threshold in thresholds.items():
            counts = Counts.from_labels(torch.from_numpy((scores >= threshold).astype(int)), truth)
            found["values"][called] = get_metric(cell.spec["metric"])(counts).item()
            found["held"][called] = all(
                bool(parse_requirement(each).holds(counts).all()) for each in cell.spec["subject_to"]
            )
        if method.name == DEFAULT:
            found |= {"scores": scores.tolist(), "histories": _by_member(fitted.model.history_)}
        return found

    def _how(self, cell: cells.Cell, rest: NDArray[np.int64]) -> dict[str, Any]:
        settings = {key: value for key, value in cell.spec.items() if key not in ("data", "parts", "if_not_reachable")}
        return settings | {"groups": None if self.groups is None else np.asarray(self.groups)[rest]}


def _by_member(history: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Each member's losses by epoch; None in place of what is not finite, which JSON cannot hold."""
    members: dict[int, list[dict[str, Any]]] = {}
    for row in history:
        losses = {name: row.get(name) for name in ("train_loss", "validation_loss")}
        members.setdefault(row["member"], []).append(
            {name: value if value is not None and math.isfinite(value) else None for name, value in losses.items()}
        )
    return list(members.values())


def _fingerprint(X: pd.DataFrame, y: NDArray[np.int64], groups: Any) -> str:
    digest = hashlib.sha256()
    of_rows = X if groups is None else X.assign(**{"\x1fgroup": groups})
    numbers = of_rows.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else column.astype(str))
    digest.update(pd.util.hash_pandas_object(numbers, index=False).to_numpy().tobytes())
    digest.update(np.ascontiguousarray(y).tobytes())
    digest.update("\x1f".join(f"{name}\x1e{kind}" for name, kind in of_rows.dtypes.items()).encode())
    return digest.hexdigest()[:16]
