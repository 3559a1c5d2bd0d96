"""``metricfit.compare``: methods trained and judged on identical folds, with intervals, paired tests and a verdict."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data import folds as split_into_folds
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.runs import Cell, run
from metricfit.runs.backends import check_backend, threads_per_job
from metricfit.runs.runner import Watch
from metricfit.tabular.compare.comparison_row import ComparisonRow
from metricfit.tabular.compare.effort import threads
from metricfit.tabular.compare.fold_cells import ComparisonTask, fingerprint
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE, Method, load_training
from metricfit.tabular.compare.methods import methods as all_methods
from metricfit.tabular.compare.standings import standings
from metricfit.tabular.compare.verdict import UNTUNED, advise
from metricfit.tabular.positive_class import choose_positive_class
from metricfit.tabular.report_layer import report_pages


@dataclass(frozen=True)
class Comparison:
    """The result of ``metricfit.compare``.

    Attributes:
        metric: Name of the metric.
        rows: One row per method, best mean first.
        verdict: Which method to use and why, in a few sentences.
        scores: The default method's score of each row, by the model that did not train on the row.
        labels: The label of each row, 1 for the positive class.
        threshold: Mean of the default method's thresholds over the folds; None if no fold has a finite one.
        effort: Network, maximum number of epochs and number of members, the same for every network and fold.
        histories: The default method's losses by epoch, one list per member and fold.
        recommended: Name of the recommended method.
        subject_to: The requirements, as text.
        name: Name of the table.
        target: Name of the column that was predicted.
        group: Name of the column whose rows stayed together; None if there is none.
        classes: Names of the negative and of the positive class.
    """

    metric: str
    rows: list[ComparisonRow]
    verdict: str
    scores: NDArray[np.float64] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    threshold: float | None = None
    effort: Mapping[str, Any] = field(default_factory=dict)
    histories: Sequence[Sequence[Mapping[str, Any]]] = field(default=(), repr=False)
    recommended: str | None = None
    subject_to: tuple[str, ...] = ()
    name: str = "table"
    target: str = "target"
    group: str | None = None
    classes: tuple[str, str] = ("negative", "positive")

    @property
    def requirements_reachable(self) -> bool:
        """Whether some tuned method met the requirements on the training rows of every fold."""
        return any(not row.not_reachable for row in self.rows if row.name not in UNTUNED)

    def to_dict(self) -> dict[str, Any]:
        """Return the metric, the verdict, the recommended method, the rows and the effort as plain values."""
        return {
            "metric": self.metric,
            "verdict": self.verdict,
            "recommended": self.recommended,
            "methods": [row.to_dict() for row in self.rows],
            "effort": dict(self.effort),
        }

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the comparison as one HTML page.

        Args:
            path: The file to write. Missing folders are created.

        Returns:
            The path of the page.

        Raises:
            ModuleNotFoundError: If the extra ``report`` is not installed.
        """
        page: Path = report_pages().write_comparison_page(self, path)
        return page


def compare(
    table: Any,
    target: Any,
    metric: str | Metric = "f1",
    *,
    methods: Sequence[str] | None = None,
    subject_to: Requirements | None = None,
    groups: Any = None,
    pos_label: Any = None,
    folds: int = 5,
    folder: str | os.PathLike[str] | None = None,
    name: str = "table",
    network: str = "auto",
    members: int = 4,
    epochs: int | None = None,
    time_budget: float | None = 60.0,
    seed: int = 0,
    jobs: int = 1,
    backend: str = "loky",
    progress: Watch | None = None,
) -> Comparison:
    """Compare ways to train a classifier and to choose its threshold, on identical folds.

    Every method is trained on all folds but one and judged on that one. The result says which method to use: the
    simplest of those that are not clearly worse than the best.

    Args:
        table: A pandas or polars DataFrame, or an array. Columns may be of any kind, and values may be missing.
        target: Name of the column to predict, or the labels themselves, one per row. There must be two classes.
        metric: The metric that the methods are judged by, such as ``"f1"`` or ``"fbeta(beta=2)"``.
        methods: Names of the methods to compare, such as ``["boosted trees"]``; by default all of them. The default of
            metricfit and cross-entropy with a tuned threshold, which the others are compared with, are always included.
        subject_to: Requirements on every method's threshold, such as ``"recall >= 0.9"``.
        groups: Name of a column, or one value per row. Rows with the same value stay on one side of a split. A column
            that is named here is not learned from.
        pos_label: The positive class. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the class with
            fewer rows.
        folds: Number of folds.
        folder: Where the results of finished trainings are kept, so that an interrupted comparison can continue. By
            default nothing is kept.
        name: Name of the table in the report.
        network: Network of the methods that train one: "auto", "blend", "embedded", "mlp" or "tabm".
        members: Number of members of each ensemble of networks.
        epochs: Maximum number of epochs. If it is given, ``time_budget`` is not used.
        time_budget: Seconds of training for each model; None for no limit.
        seed: Seed of the folds and of every method.
        jobs: Number of trainings at a time; -1 for one per core.
        backend: Backend of joblib: "loky" for processes on this machine, "ray" or "dask" for several machines.
        progress: Called after every training with a ``metricfit.runs.Progress``.

    Returns:
        The rows, the verdict and the recommended method; ``report(path)`` writes them as an HTML page.

    Raises:
        InvalidValueError: If the table, the target or an option cannot be used; the message says why.

    Example:
        >>> import metricfit, numpy as np, pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> table = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]).assign(y=lambda t: t["a"] > 0.5)
        >>> result = metricfit.compare(
        ...     table, "y", "f1", methods=["logistic regression"], folds=2, network="mlp", members=2, epochs=1
        ... )
        >>> sorted(row.name for row in result.rows)[:2]
        ['cross-entropy at 0.5', 'cross-entropy, tuned threshold']
    """
    check_backend(jobs, backend)
    metric_name = _name_of(metric)
    requirements = _as_texts(subject_to)
    X, y, group_values, group_name, target_name = _split_columns(table, target, groups)
    labels, classes = _binary_labels(y, pos_label, folds)
    compared = _choose_methods(methods, constrained=bool(requirements))
    splits = split_into_folds(X, labels, folds, seed=seed, groups=group_values)
    task = ComparisonTask(X, labels, group_values, splits, compared)
    spec: dict[str, Any] = {
        "data": fingerprint(X, labels, group_values),
        "metric": metric_name,
        "subject_to": requirements,
        "parts": folds,
        "seed": seed,
    }
    if requirements:  # cells of version 0.1.0 have no value where the requirements could not be met
        spec["if_not_reachable"] = "nearest threshold"
    settings = {"network": network, "members": members, "epochs": epochs}
    settings["time_budget"] = time_budget if epochs is None else None
    with _cell_folder(folder) as place:
        effort_cell = Cell((name, "effort"), spec | settings)
        with threads(threads_per_job(jobs)):
            effort = run([effort_cell], task.plan, place)[effort_cell.name]["effort"]
        fold_cells = task.cells(name, spec | settings | effort | {"time_budget": None})
        results = run(fold_cells, task.judge, place, jobs=jobs, backend=backend, prepare=load_training, watch=progress)
    reports: dict[str, list[dict[str, Any]]] = {}
    for cell in fold_cells:
        reports.setdefault(cell.method.name, []).append(results[cell.name])
    rows = standings(reports, get_metric(metric_name), required=bool(requirements))
    scores = np.full(len(labels), np.nan)
    thresholds, histories = [], []
    for (_, test_rows), report in zip(splits, reports[DEFAULT], strict=True):
        scores[test_rows] = report["scores"]
        if report["threshold"] is not None:
            thresholds.append(report["threshold"])
        histories += report.get("histories", [])  # the first cells of version 0.1.0 did not keep them
    advice = advise(rows, metric_name)
    return Comparison(
        metric_name,
        rows,
        advice.text,
        scores,
        labels,
        threshold=statistics.fmean(thresholds) if thresholds else None,
        effort=effort,
        histories=histories,
        recommended=advice.row.name,
        subject_to=tuple(requirements),
        name=name,
        target=target_name,
        group=group_name,
        classes=classes,
    )


def _name_of(metric: str | Metric) -> str:
    """Return the metric as text, because the cells of a comparison keep it in their files."""
    if isinstance(metric, str):
        get_metric(metric)
        return metric
    try:
        known = get_metric(metric.name) == metric
    except ValueError:
        known = False
    if not known:
        raise InvalidValueError(
            f"compare takes metrics that metricfit knows by name, such as 'fbeta(beta=2)'; got {quote(metric)}"
        )
    return metric.name


def _as_texts(subject_to: Requirements | None) -> list[str]:
    as_requirements(subject_to)  # checks them
    if subject_to is None:
        return []
    several = [subject_to] if isinstance(subject_to, (str, Requirement)) else subject_to
    return [str(requirement) for requirement in several]


def _split_columns(table: Any, target: Any, groups: Any) -> tuple[pd.DataFrame, pd.Series, Any, str | None, str]:
    """Return the features, the labels, the groups, and the names of the group and target columns."""
    frame = table.to_pandas() if hasattr(table, "to_pandas") else pd.DataFrame(table)
    if not all(isinstance(column, str) for column in frame.columns):
        frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    y, target_name = _column(frame, target, "target")
    group_values, group_name = (None, None) if groups is None else _column(frame, groups, "groups")
    named = [column for column in (target, groups) if isinstance(column, str)]
    if len(set(named)) < len(named):
        raise InvalidValueError(f"target and groups both name the column {quote(target)}; groups need another column")
    X = frame.drop(columns=named)
    if X.shape[1] == 0:
        raise InvalidValueError("the table has no column to learn from")
    return X, y, None if group_values is None else group_values.to_numpy(), group_name, target_name


def _column(frame: pd.DataFrame, column: Any, parameter: str) -> tuple[pd.Series, str]:
    """Return a column that is given by its name or by its values, and what to call it."""
    if isinstance(column, str):
        if column not in frame.columns:
            raise InvalidValueError(f"{parameter}={quote(column)} is not a column of the table")
        values, name = frame[column], column
    else:
        values = pd.Series(np.asarray(column)) if not isinstance(column, pd.Series) else column
        name = str(getattr(column, "name", None) or parameter)
    if len(values) != len(frame):
        raise InvalidValueError(f"{parameter} has {len(values)} values for a table of {len(frame)} rows")
    missing = int(values.isna().sum())
    if missing:
        raise InvalidValueError(f"{parameter} is missing in {missing} of {len(frame)} rows; remove those rows")
    return values, name


def _binary_labels(y: pd.Series, pos_label: Any, folds: int) -> tuple[NDArray[np.int64], tuple[str, str]]:
    """Return labels with 1 for the positive class, and the names of the negative and the positive class."""
    counts = y.value_counts()
    if len(counts) != 2:
        raise InvalidValueError(
            f"compare is for two classes; the target has {len(counts)}. Make one class against the rest in your table, "
            "or use fit, which takes several"
        )
    if counts.iloc[-1] < folds:
        raise InvalidValueError(
            f"the class {quote(counts.index[-1])} has {counts.iloc[-1]} rows, fewer than {folds} folds; use fewer folds"
        )
    positive = choose_positive_class(y.to_numpy(), pos_label)
    negative = next(label for label in counts.index if label != positive)
    return (y == positive).to_numpy().astype(np.int64), (str(negative), str(positive))


def _choose_methods(names: Sequence[str] | None, *, constrained: bool) -> list[Method]:
    known = all_methods(constrained)
    if names is None:
        return known
    unknown = [name for name in names if name not in [method.name for method in known]]
    if unknown:
        listed = ", ".join(quote(method.name) for method in known)
        raise InvalidValueError(f"there is no method {quote(unknown[0])}; the methods are {listed}")
    return [method for method in known if method.name in {*names, DEFAULT, REFERENCE}]


@contextmanager
def _cell_folder(folder: str | os.PathLike[str] | None) -> Iterator[str | os.PathLike[str]]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="metricfit-compare-") as temporary:
        yield temporary
