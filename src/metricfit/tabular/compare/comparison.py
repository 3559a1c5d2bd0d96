"""``metricfit.compare``: methods trained and judged on identical folds, with intervals, paired tests and a verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.types import ScalarAverage
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.costs import RowCosts, check_costs, cost_columns, row_costs
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import Metric, get_metric
from metricfit.metrics.class_order import check_has_order, declared_order
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.runs import run
from metricfit.runs.cells import Watch
from metricfit.runs.executor import check_backend, threads_per_job
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.compare.arguments import (
    cell_folder,
    check_confidence_of_folds,
    name_of_metric,
    number_classes,
    numbered_requirements,
    requirement_texts,
    sort_by_time_column,
    split_columns,
    split_rows,
)
from metricfit.tabular.compare.judging import FoldResults, MethodDecisions, judge_folds, judge_pooled
from metricfit.tabular.compare.methods import BASELINES, DEFAULT, UNTUNED, choose_methods, classifier_of
from metricfit.tabular.compare.run_description import continue_run, describe_table
from metricfit.tabular.compare.trainings import (
    TrainingTask,
    forget_encoded_fold,
    load_training,
    read_training,
    trainings_of,
)
from metricfit.tabular.compare.verdict import ComparisonRow, advise, standings
from metricfit.tabular.parameters import threads_of
from metricfit.tabular.report_layer import report_module


@dataclass(frozen=True)
class Comparison:
    """The result of ``metricfit.compare``.

    Attributes:
        metric: Name of the metric.
        rows: One row per method and per decision without a model, best mean first.
        verdict: Which method to use and why, in a few sentences.
        scores: The default method's probabilities of each row, by models that did not train on the row: of the positive
            class ``(n,)``, or of each of several classes ``(n, c)``.
        decided: The class number that the default method decided for each row.
        labels: The class number of each row; of two classes, 1 is the positive one.
        threshold: Mean of the default method's thresholds over the folds; None for several classes and for costs in
            columns.
        recommended: Name of the recommended method.
        subject_to: The requirements, as text.
        average: The average over several classes.
        notes: What was left out of the comparison, and why.
        name: Name of the table.
        target: Name of the column that was predicted.
        group: Name of the column whose rows stayed together; None if there is none.
        classes: Names of the classes, by their numbers; of two, the positive one is second.
        costs: The costs of each row, if the metric takes costs from columns.
        decisions: The scores, the decisions and the thresholds of each method, by its name.
        groups: The group of each row; None if there is no such column.
        time: Name of the column that the rows are ordered by; None if folds are not in the order of time. With it, the
            first rows are only learned from, and are missing in scores, decisions, labels and costs.
        confidence: The probability with which the requirements had to hold on new rows; None if they were met on the
            training rows alone.

    Example:
        >>> import metricfit, numpy as np, pandas as pd
        >>> table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
        >>> result = metricfit.compare(table, table["a"] > 0.5, methods=["logistic regression"], folds=2)
        >>> isinstance(result, Comparison)
        True
    """

    metric: str
    rows: list[ComparisonRow]
    verdict: str
    scores: NDArray[np.float64] = field(repr=False)
    decided: NDArray[np.int64] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    threshold: float | None = None
    recommended: str | None = None
    subject_to: tuple[str, ...] = ()
    average: ScalarAverage = "macro"
    notes: tuple[str, ...] = ()
    name: str = "table"
    target: str = "target"
    group: str | None = None
    classes: tuple[str, ...] = ("negative", "positive")
    costs: RowCosts | None = field(default=None, repr=False)
    decisions: Mapping[str, MethodDecisions] = field(default_factory=dict, repr=False)
    groups: NDArray[Any] | None = field(default=None, repr=False)
    time: str | None = None
    confidence: float | None = None

    @property
    def requirements_reachable(self) -> bool:
        """Whether some tuned method met the requirements on the training rows of every fold."""
        return any(not row.not_reachable for row in self.rows if row.name not in {*UNTUNED, *BASELINES})

    def classifier(self, method: str | None = None, **parameters: Any) -> MetricClassifier:
        """Return a compared method as an unfitted classifier, to fit it on all rows.

        Args:
            method: Name of the method; by default the recommended one.
            parameters: Parameters of MetricClassifier, such as ``pos_label``.

        Returns:
            The classifier, for the metric and the requirements of the comparison.

        Raises:
            InvalidValueError: There is no such method.
        """
        name = self.recommended if method is None else method
        settings: dict[str, Any] = {
            "subject_to": list(self.subject_to) or None,
            "confidence": self.confidence,
            "average": self.average,
        }
        return classifier_of(str(name), self.metric, **settings | parameters)

    def to_dict(self) -> dict[str, Any]:
        """Describe the comparison in plain values, in the form that ``metricfit compare --json`` prints.

        Returns:
            The metric, the verdict, the recommended method with how sure that is, the rows and the notes.
        """
        advice = advise(self.rows, self.metric)
        return {
            "metric": self.metric,
            "verdict": self.verdict,
            "recommended": self.recommended,
            "recommendation": {
                "method": advice.row.name,
                "mean": advice.row.mean,
                "interval": advice.row.interval,
                "sure": advice.sure,
                "not_better_than": advice.alarm,
                "requirements_reachable": self.requirements_reachable,
            },
            "methods": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
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
        page: Path = report_module("comparison_page").write_comparison_page(self, path)
        return page


def compare(
    table: Any,
    target: Any,
    metric: str | Metric = "f1",
    *,
    methods: Sequence[str] | None = None,
    subject_to: Requirements | None = None,
    confidence: float | None = None,
    groups: Any = None,
    time: Any = None,
    pos_label: Any = None,
    average: ScalarAverage = "macro",
    folds: int = 5,
    folder: str | os.PathLike[str] | None = None,
    name: str = "table",
    time_budget: float | None = 300.0,
    seed: int = 0,
    jobs: int = 1,
    backend: str = "loky",
    progress: Watch | None = None,
) -> Comparison:
    """Compare ways to train a classifier and to decide, on identical folds.

    Every method is trained on all folds but one and judged on that one, exactly as ``MetricClassifier`` trains it.
    Methods that consist of the same models share their training. The result recommends the method with the best mean,
    or a simpler one that is nearly as good.

    Args:
        table: A pandas or polars DataFrame, or an array. Columns may be of any kind, and values may be missing.
        target: Name of the column to predict, or the labels themselves, one per row.
        metric: The metric that the methods are judged by, such as ``"f1"`` or ``"fbeta(beta=2)"``. With
            ``"cost(fp=5, fn='amount')"`` they are judged by the mean cost per row, where a miss costs what the column
            "amount" says; methods that are trained for a metric of counts are then left out.
        methods: Names of the methods to compare, such as ``["extra trees"]``; by default all of them. The default of
            metricfit and boosted trees, which the others are compared with, are always included.
        subject_to: Requirements on every method's decisions, such as ``"recall >= 0.9"``; of several classes,
            ``"recall['gold'] >= 0.9"`` is on one of them.
        confidence: The probability with which the requirements must hold on new rows, as in ``MetricClassifier``.
        groups: Name of a column, or one value per row. Rows with the same value stay on one side of a split. A column
            that is named here is not learned from.
        time: Name of a column of dates or numbers, or one value per row. Rows are sorted by it, and every fold is
            judged by models of earlier rows; the first rows are only learned from. A column that is named here is not
            learned from.
        pos_label: The positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the class
            with fewer rows.
        average: Average of the metric over several classes: "macro", "micro" or "weighted".
        folds: Number of folds.
        folder: Where finished trainings are kept, so that an interrupted comparison can continue, and a comparison for
            another metric reuses the trainings that do not depend on it. A folder with trainings of another table or
            with other options is refused with what has changed. By default nothing is kept.
        name: Name of the table in the report.
        time_budget: Seconds of each training; None for no limit. A model that would not be ready in time is left out.
            Boosted trees are always trained.
        seed: Seed of the folds and of every method.
        jobs: Number of trainings at a time; -1 for one per core.
        backend: Backend of joblib: "loky" for processes on this machine, "ray" or "dask" for several machines.
        progress: Called after every training with a ``metricfit.runs.Progress``.

    Returns:
        The rows, the verdict and the recommended method; ``report(path)`` writes them as an HTML page, and
        ``classifier()`` is the recommended method, to be fitted on all rows.

    Raises:
        InvalidValueError: If the table, the target or an option cannot be used; the message says why.
        CellError: If ``folder`` holds trainings of another table or with other options, or a training failed.

    Example:
        >>> import metricfit, numpy as np, pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> table = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]).assign(y=lambda t: t["a"] > 0.5)
        >>> result = metricfit.compare(table, "y", "f1", methods=["logistic regression"], folds=2)
        >>> sorted(row.name for row in result.rows)[1:4]
        ['at random', 'boosted trees', 'logistic regression']
    """
    check_backend(jobs, backend)
    metric_name, requirements = name_of_metric(metric), requirement_texts(subject_to)
    X, y, group_values, group_name, target_name = split_columns(table, target, groups, time)
    time_name = None
    if time is not None:
        X, y, time_name = sort_by_time_column(table, X, y, time)
    labels, classes = number_classes(y, pos_label, folds)
    required = class_requirements(as_requirements(subject_to), len(classes), names=classes)
    if average not in ("macro", "micro", "weighted"):
        raise InvalidValueError(f"average is 'macro', 'micro' or 'weighted'; got {quote(average)}")
    judged = get_metric(metric_name)
    check_has_order(
        np.unique(y).tolist(), declared_order(y), [judged, *(requirement.metric for requirement in required)]
    )
    columns = cost_columns(judged, X)
    check_costs(judged, columns, len(classes), requirements)
    compared = choose_methods(
        methods, classes=len(classes), constrained=bool(requirements), row_costs=bool(judged.columns)
    )
    splits, notes = split_rows(X, labels, folds, seed=seed, groups=group_values, forward=time is not None)
    check_confidence_of_folds(required, confidence, labels, group_values, splits)
    task = TrainingTask(
        X,
        labels,
        group_values,
        splits,
        metric_name,
        average,
        numbered_requirements(required, len(classes)),
        seed,
        time_budget,
        threads_per_job(jobs) or threads_of(-1),
        time is not None,
    )
    description = describe_table(X, labels, classes, group_values) | {
        "target": target_name,
        "positive": classes[1] if len(classes) == 2 else None,
        "group": group_name,
        "time": time_name,
        "folds": folds,
        "seed": seed,
        "time_budget": time_budget,
        "metric": metric_name,
        "average": average,
        "subject_to": requirements,
        "confidence": confidence,
        "methods": [method.name for method in compared],
    }
    trainings = list(dict.fromkeys(training for method in compared for training in trainings_of(method)))
    cells = task.cells(name, trainings)
    with cell_folder(folder) as place:
        continue_run(place, name, description)
        try:
            reports = run(cells, task.train, place, jobs=jobs, backend=backend, prepare=load_training, watch=progress)
        finally:
            forget_encoded_fold()
    trained = {(cell.training, cell.fold): read_training(cell, reports[cell.name]) for cell in cells}
    results: FoldResults = judge_folds(task, compared, trained, len(classes), required, confidence)
    tested = task.tested_rows
    decisions = {method: decided.take(tested) for method, decided in results.decisions.items()}
    rows = [
        replace(row, requirements=judge_pooled(decisions[row.name].decided, labels[tested], len(classes), required))
        if row.name in decisions
        else row
        for row in standings(results.by_row, judged, required=bool(requirements))
    ]
    advice, by_default = advise(rows, metric_name), decisions[DEFAULT]
    return Comparison(
        metric_name,
        rows,
        advice.text,
        by_default.scores,
        by_default.decided,
        labels[tested],
        threshold=by_default.threshold,
        recommended=advice.row.name,
        subject_to=tuple(requirements),
        confidence=confidence,
        average=average,
        notes=(*notes, *results.notes),
        name=name,
        target=target_name,
        group=group_name,
        classes=classes,
        costs=row_costs(judged, columns, len(labels)).take(tested) if judged.columns else None,
        decisions=decisions,
        groups=group_values,
        time=time_name,
    )
