"""compare: every method on identical folds, with intervals, paired tests and a verdict in plain words."""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit import stats
from metricfit.core.counts import Counts
from metricfit.data import folds
from metricfit.experiments import cells
from metricfit.experiments.backends import check, threads_each
from metricfit.experiments.effort import shared_effort, threads
from metricfit.experiments.methods import DEFAULT, REFERENCE, Method, load_training, methods, train
from metricfit.metrics import Metric, get_metric, parse_requirement

TIE = 0.01


@dataclass(frozen=True)
class Row:
    """A method's values, one a fold, and what they say.

    Attributes:
        interval: of the mean, 95 %, by the corrected t of Nadeau & Bengio (2003), within the bounds of the metric; None
            where all folds have one value, for then nothing says how far it is to be trusted.
        seconds: of training, over all folds.
        held: on how many folds the requirements held.
        versus: the method beside the reference; None for the reference itself and what equals it on every fold.
    """

    name: str
    values: tuple[float, ...]
    interval: stats.Interval | None
    seconds: float
    held: int
    versus: stats.SplitComparison | None

    @property
    def mean(self) -> float:
        """Over folds."""
        return statistics.fmean(self.values)


@dataclass(frozen=True)
class Comparison:
    """Methods, best first; the verdict; and the default method's scores of every row, out of sample.

    Attributes:
        rows: one a method.
        verdict: what to do, in a sentence or two.
        scores: the default method's, each row's by the model that had not seen it.
        threshold: the mean of the folds' thresholds.
        effort: network, epochs at most and members, the same for every network and fold.
        histories: the default method's losses by epoch, a list for each member of each fold.
    """

    metric: str
    rows: list[Row]
    verdict: str
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    threshold: float
    effort: Mapping[str, Any] = field(default_factory=dict)
    histories: Sequence[Sequence[Mapping[str, Any]]] = ()


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
    first = cells.Cell((name, "effort"), spec | settings)
    with threads(threads_each(jobs)):
        effort = cells.run([first], on.plan, folder)[first.name]["effort"]
    same = settings | effort | {"time_budget": None}
    every = [cells.Cell((name, each.name, f"fold {at}"), spec | same) for each in several for at in range(parts)]
    found = cells.run(every, on.judge, folder, jobs=jobs, backend=backend, watch=watch)
    rows = _rows(found, name, several, parts, get_metric(metric))
    scores = np.empty(len(y))
    thresholds, histories = [], []
    for at, (_, part) in enumerate(on.outer):
        of_fold = found[name, DEFAULT, f"fold {at}"]
        scores[part] = of_fold["scores"]
        thresholds.append(of_fold["threshold"])
        histories += of_fold.get("histories", [])  # cells from before they were kept have none
    said = verdict(rows, metric, required=bool(subject_to))
    return Comparison(metric, rows, said, scores, y, statistics.fmean(thresholds), effort, histories)


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
        """A method, trained on all folds but one and judged on that one."""
        _, method_name, fold = cell.name
        method = self.by_name[method_name]
        rest, part = self.outer[int(fold.removeprefix("fold "))]
        load_training()
        began = time.perf_counter()
        fitted = train(method, self.X.iloc[rest], self.y[rest], **self._how(cell, rest))
        seconds = time.perf_counter() - began
        scores = fitted.scores(self.X.iloc[part])
        # No threshold decides where none is finite: nothing is positive.
        found: dict[str, Any] = {"threshold": fitted.threshold if math.isfinite(fitted.threshold) else None}
        found |= {"training_seconds": seconds, "values": {}, "held": {}}
        truth = torch.from_numpy(self.y[part])
        for called, threshold in ((method.name, fitted.threshold), (method.at_half, 0.5)):
            if called is not None:
                counts = Counts.from_labels(torch.from_numpy((scores >= threshold).astype(int)), truth)
                found["values"][called] = get_metric(cell.spec["metric"])(counts).item()
                found["held"][called] = all(
                    bool(parse_requirement(each).holds(counts).all()) for each in cell.spec["subject_to"]
                )
        if method.name == DEFAULT:
            found |= {"scores": scores.tolist(), "histories": _by_member(fitted.model.history_)}
        return found

    def _how(self, cell: cells.Cell, rest: NDArray[np.int64]) -> dict[str, Any]:
        settings = {key: value for key, value in cell.spec.items() if key not in ("data", "parts")}
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


def _rows(found: dict[Any, Any], name: str, several: Sequence[Method], parts: int, metric: Metric) -> list[Row]:
    values: dict[str, list[float]] = {}
    held: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for method in several:
        for at in range(parts):
            report = found[name, method.name, f"fold {at}"]
            for called, value in report["values"].items():
                values.setdefault(called, []).append(value)
                held[called] = held.get(called, 0) + report["held"][called]
                seconds[called] = seconds.get(called, 0.0) + report["training_seconds"]
    rows = [
        Row(
            called,
            tuple(of),
            interval_of_mean(of, metric),
            seconds[called],
            held[called],
            _versus(called, of, values[REFERENCE], parts, metric.minimize),
        )
        for called, of in values.items()
    ]
    return sorted(rows, key=lambda row: row.mean if metric.minimize else -row.mean)


def interval_of_mean(values: Sequence[float], metric: Metric) -> stats.Interval | None:
    """The 95 % interval of the mean over the folds of a cross-validation, a value each.

    The folds' training rows overlap, so Student's interval of the mean would be far too short: the variance is that of
    Nadeau & Bengio (2003), with as many folds as values. Cut at the metric's bounds, which the mean cannot pass; None
    where all values are equal.

    >>> interval_of_mean([0.70, 0.74, 0.69, 0.72, 0.75], get_metric("f1"))
    (0.6725, 0.7675)
    """
    if len(set(values)) == 1:
        return None
    from_zero = stats.compare_splits(values, [0.0] * len(values), test_fraction=1 / len(values))
    low, high = metric.bounds
    return stats.Interval(max(low, from_zero.interval.low), min(high, from_zero.interval.high))


def _versus(
    name: str, values: Sequence[float], reference: Sequence[float], parts: int, minimize: bool
) -> stats.SplitComparison | None:
    if name == REFERENCE or list(values) == list(reference):
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the values differ by .* on every split")  # the verdict says so in its words
        return stats.compare_splits(values, reference, test_fraction=1 / parts, rope=TIE, minimize=minimize)


def verdict(rows: Sequence[Row], metric: str, *, required: bool = False) -> str:
    """What the numbers say, in plain words; ``required`` if requirements were to hold."""
    by_name = {row.name: row for row in rows}
    mine, best, minimize = by_name[DEFAULT], rows[0], get_metric(metric).minimize
    first = _beside_reference(mine, metric, minimize)
    if required:
        first += f" With metricfit's default the requirements held on {mine.held} of {len(mine.values)} folds."
    if best.name in (DEFAULT, REFERENCE):
        return first
    held = f"; with it the requirements held on {best.held} of {len(best.values)} folds" if required else ""
    return f"{first} The {'lowest' if minimize else 'highest'} mean is that of {best.name}: {best.mean:.3f}{held}."


def _beside_reference(mine: Row, metric: str, minimize: bool) -> str:
    if mine.versus is None:
        return f"Cross-entropy with a tuned threshold does exactly as well here ({metric} {mine.mean:.3f}); use it."
    low, high = mine.versus.interval
    if low == high:
        return (
            f"The difference to cross-entropy with a tuned threshold is {low:+.3f} on every fold, too few values to "
            "say how sure that is; ask for other folds, or more of them."
        )
    between = f"{mine.versus.difference:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}"
    if low <= 0 <= high:
        return f"Cross-entropy with a tuned threshold does as well here ({between}); use it, it is simpler."
    if (high < 0) == minimize:
        return f"metricfit's default is better than cross-entropy with a tuned threshold here ({between})."
    return f"Cross-entropy with a tuned threshold is better here ({between}); use it."


def _fingerprint(X: pd.DataFrame, y: NDArray[np.int64], groups: Any) -> str:
    digest = hashlib.sha256()
    of_rows = X if groups is None else X.assign(**{"\x1fgroup": groups})
    numbers = of_rows.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else column.astype(str))
    digest.update(pd.util.hash_pandas_object(numbers, index=False).to_numpy().tobytes())
    digest.update(np.ascontiguousarray(y).tobytes())
    digest.update("\x1f".join(f"{name}\x1e{kind}" for name, kind in of_rows.dtypes.items()).encode())
    return digest.hexdigest()[:16]
