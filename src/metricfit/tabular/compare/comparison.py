"""``metricfit.compare``: methods trained and judged on identical folds, with intervals, paired tests and a verdict."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit

from metricfit._files import hash_bytes
from metricfit.core.arrays import Floats
from metricfit.core.types import ScalarAverage
from metricfit.data import folds as split_into_folds
from metricfit.data.columns import order_by_time
from metricfit.decide.choose import checked_guarantee
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.costs import RowCosts, check_costs, cost_columns, row_costs
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.class_order import check_has_order, declared_order
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.runs import run
from metricfit.runs.cells import Watch
from metricfit.runs.executor import check_backend, threads_per_job
from metricfit.tabular.checks import check_calibration, checked_weights, threads_of, to_pandas, with_rows
from metricfit.tabular.compare.judging import MethodDecisions, judge_folds, judge_pooled, pooled_decisions
from metricfit.tabular.compare.methods import (
    COMPLEXITY,
    PLAIN,
    REFERENCE,
    TUNED,
    YOURS,
    Method,
    OutsidePredictions,
    OwnModel,
    check_names,
    choose_methods,
    find_method,
    lightgbm_as_it_comes,
    numbers_of,
    read_predictions,
    split_methods,
)
from metricfit.tabular.compare.paired_rows import MOST_CLASSES, FoldTest, PairTest, RowTest
from metricfit.tabular.compare.trainings import (
    Compared,
    ComparedRows,
    TrainingTask,
    continue_run,
    describe_table,
    forget_encoded_fold,
    load_networks,
    read_training,
)
from metricfit.tabular.compare.verdict import Advice, ComparisonRow, advise, standings
from metricfit.tabular.estimator_scores import weight_parameter
from metricfit.tabular.families.family import Splits
from metricfit.tabular.insight.value_intervals import short_time
from metricfit.tabular.positive_class import choose_positive_class, classes_of, order_of

#: Methods whose values are shown by period.
MOST_OVER_TIME = 5


@dataclass(frozen=True)
class FoldPeriod:
    """The values on one fold of rows in the order of time.

    Attributes:
        first: The time of its first row.
        last: The time of its last row.
        rows: Number of rows.
        values: The metric of each method, by its name.
    """

    first: str
    last: str
    rows: int
    values: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of ``metricfit.compare``.

    Attributes:
        metric: Name of the metric.
        rows: One row per method and per decision without a model, best mean first.
        verdict: Which method to use, and how it compares with the reference and with your own models: two sentences.
        labels: The class number of each row; of two classes, 1 is the positive one.
        recommended: Name of the recommended method.
        details: The reasons in full, with intervals, and the rule: one sentence or two each.
        subject_to: The requirements, as text.
        average: The average over several classes.
        notes: What was left out of the comparison, and why.
        name: Name of the table.
        target: Name of the column that was predicted.
        group: Name of the column whose rows stayed together; None if there is none.
        classes: Names of the classes, by their numbers; of two, the positive one is second.
        costs: The costs of each row, if the metric takes costs from columns.
        decisions: The scores, the decisions and the thresholds of each row of the comparison that has a model.
        groups: The group of each row; None if there is no such column.
        time: Name of the column that the rows are ordered by; None if folds are not in the order of time. With it, the
            first rows are only learned from, and are missing in decisions, labels and costs.
        confidence: The probability with which the requirements had to hold on new rows; None if they were met on the
            training rows alone.
        weight: The weight of each row, if rows have weights.
        calibration: The share of the training rows that decisions were chosen on; None if they were chosen on all.
        periods: The values by period, if folds are in the order of time: one period per fold, the earliest first.
        models: The models from outside metricfit that were compared, by their names.
        positive: The positive label of two; None for several classes.

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
    labels: NDArray[np.int64]
    recommended: str
    details: tuple[str, ...] = ()
    subject_to: tuple[str, ...] = ()
    average: ScalarAverage = "macro"
    notes: tuple[str, ...] = ()
    name: str = "table"
    target: str = "target"
    group: str | None = None
    classes: tuple[str, ...] = ("negative", "positive")
    costs: RowCosts | None = None
    decisions: Mapping[str, MethodDecisions] = field(default_factory=dict)
    groups: NDArray[Any] | None = None
    time: str | None = None
    confidence: float | None = None
    weight: Floats | None = None
    calibration: float | None = None
    periods: tuple[FoldPeriod, ...] = ()
    models: Mapping[str, OwnModel | OutsidePredictions] = field(default_factory=dict)
    positive: Any = None

    @property
    def requirements_reachable(self) -> bool:
        """Whether some tuned method met the requirements on the training rows of every fold."""
        return not self.subject_to or any(not row.not_reachable for row in self.rows if not row.plain)

    @property
    def over_time(self) -> list[str]:
        """The methods whose values are shown by period: the reference, your own models, and the recommended one."""
        others = [name for name in dict.fromkeys([*self.models, self.recommended]) if name != REFERENCE]
        return [REFERENCE, *others[1 - MOST_OVER_TIME :]]

    @property
    def reference_first(self) -> list[ComparisonRow]:
        """The rows as they are shown: what one would do without this library, then the best mean first."""
        return sorted(self.rows, key=lambda row: row.name != REFERENCE)

    def classifier(self, method: str | None = None, **parameters: Any) -> Any:
        """Return a compared method as an unfitted classifier, to fit it on all rows.

        Args:
            method: Name of the method; by default the recommended one.
            parameters: Parameters of MetricClassifier, or of TunedDecisionClassifier for a model of your own with tuned
                decisions.

        Returns:
            A MetricClassifier for the metric and the requirements of the comparison; for a model of your own the model
            itself, or a TunedDecisionClassifier around it.

        Raises:
            InvalidValueError: There is no such method, or its predictions are all that is known.
        """
        name = self.recommended if method is None else method
        settings: dict[str, Any] = {"subject_to": list(self.subject_to) or None, "confidence": self.confidence}
        settings |= {"average": self.average} | ({} if self.positive is None else {"pos_label": self.positive})
        settings |= parameters
        model = self.models.get(name.removesuffix(TUNED))
        if isinstance(model, OutsidePredictions):
            raise InvalidValueError(f"{quote(name)} was compared by its predictions, so there is nothing to fit")
        if model is None:
            return find_method(name).classifier(self.metric, **{"calibration": self.calibration} | settings)
        return model.classifier(name, self.metric, forward=self.time is not None, **settings)

    def advice(self, label: str | None = None) -> Advice:
        """Recommend a method by the rule of the documentation.

        Args:
            label: What to call the metric, if not by its name.

        Returns:
            The recommended row, the verdict and the reasons.
        """
        return advise(self.rows, self.metric, label, self._test)

    @cached_property
    def _test(self) -> PairTest:
        by_fold = FoldTest({row.name: row.values for row in self.rows}, get_metric(self.metric))
        if self.groups is not None:
            return by_fold
        return RowTest.of(self.decisions, self.labels, self.average, by_fold, self.weight, self.costs)

    @property
    def tested_by(self) -> str:
        """How differences are tested, in words."""
        if self.groups is None and len(self.classes) <= MOST_CLASSES:
            return "a paired bootstrap of the rows, each judged by models that did not see it"
        return "paired by fold; Nadeau and Bengio's corrected t-test, because the folds' training rows overlap"

    def to_dict(self) -> dict[str, Any]:
        """Describe the comparison in plain values, in the form that ``metricfit compare --json`` prints.

        Returns:
            The metric, the verdict, the recommended method with how sure that is, the rows and the notes.
        """
        advice = self.advice()
        return {
            "metric": self.metric,
            "verdict": self.verdict,
            "details": list(self.details),
            "recommended": self.recommended,
            "recommendation": {
                "method": advice.row.name,
                "mean": advice.row.mean,
                "interval": advice.row.interval,
                "sure": advice.sure,
                "not_better_than": advice.alarm,
                "requirements_reachable": self.requirements_reachable,
            },
            "methods": [asdict(row) for row in self.rows],
            "periods": [asdict(period) for period in self.periods],
            "notes": list(self.notes),
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a table: the reference first, then the best mean first.

        Returns:
            One row per method: its mean with a 95 % interval, the seconds of training, and whether it is recommended.
            The difference to the reference has a simultaneous interval and a corrected p-value. Under
            requirements there is also the number of folds on which they held.
        """
        rows = [asdict(row) | {"recommended": row.name == self.recommended} for row in self.reference_first]
        for row in rows:
            row["low"], row["high"] = row["interval"] or (None, None)
            row["difference_low"], row["difference_high"] = row["difference_interval"] or (None, None)
        ends = ["low", "high", "difference_low", "difference_high"]
        numbers = ["mean", "difference", "p_value", "seconds", "held", *ends]
        frame = pd.DataFrame(rows)[["name", "recommended", *numbers]].astype(dict.fromkeys(numbers, float))
        return frame.rename(columns={"name": "method"}).drop(columns=[] if self.subject_to else "held")

    def __repr__(self) -> str:
        columns = ["method", "mean", "difference", "seconds", *(["held"] if self.subject_to else [])]
        shown = self.to_frame()[columns].to_string(index=False, na_rep="", float_format="{:.3f}".format)
        return f"{self.verdict}\n\n{shown}"

    def _repr_html_(self) -> str:
        """Show the verdict, the table with the recommended row marked, and the reasons folded away, in a notebook."""
        shown: str = import_module("metricfit.report.comparison_page").show_comparison(self)
        return shown

    def plot(self) -> Any:
        """Draw the mean of each method with its interval, with the recommended one in another colour.

        Returns:
            A figure of matplotlib, which a notebook shows.
        """
        return import_module("metricfit.tabular.plots").draw_comparison(self)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the comparison as one HTML page.

        Args:
            path: The file to write. Missing folders are created.

        Returns:
            The path of the page.

        Raises:
            ModuleNotFoundError: If the extra ``report`` is not installed.
        """
        page: Path = import_module("metricfit.report.comparison_page").write_comparison_page(self, path)
        return page


def compare(
    table: Any,
    target: Any,
    metric: str | Metric = "f1",
    *,
    methods: Sequence[Any] | None = None,
    predictions: Mapping[str, Any] | None = None,
    networks: bool = False,
    subject_to: Requirements | None = None,
    confidence: float | None = None,
    calibration: float | None = None,
    sample_weight: Any = None,
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
    """Compare ways to train a classifier and to decide, on identical folds: metricfit's methods, and your own models.

    Every method is trained on all folds but one and judged on that one. Methods of metricfit are trained as
    ``MetricClassifier`` trains them; those that consist of the same models share their training. A model of your own
    has two rows: its own ``predict``, and the decisions of a ``TunedDecisionClassifier`` around it. LightGBM with its
    defaults, decided by its own ``predict``, is always there, and every difference is to this reference. The result
    recommends the method with the best mean, or a simpler one that is nearly as good.

    Args:
        table: A pandas or polars DataFrame, or an array. Columns may be of any kind, and values may be missing.
        target: Name of the column to predict, or the labels themselves, one per row.
        metric: The metric that the methods are judged by, such as ``"f1"`` or ``"fbeta(beta=2)"``. With
            ``"cost(fp=5, fn='amount')"`` they are judged by the mean cost per row, where a miss costs what the column
            "amount" says; methods that are trained for a metric of counts are then left out.
        methods: What to compare: names such as ``"metricfit"`` or ``"extra trees"``, classifiers of your own, and pairs
            of a name and a classifier. By default all methods of metricfit that take seconds. A Pipeline gets the table
            as it is; for another classifier, words become categories.
        predictions: Predictions of other programs by their names, each made by models that did not train on the row:
            one label or one probability of the positive class per row, or a table with a column of probabilities per
            class. A column "fold" says which fold held each row out; all methods are then compared on these folds.
        networks: Whether to compare networks too, which need torch and take minutes.
        subject_to: Requirements on every method's decisions, such as ``"recall >= 0.9"``; of several classes,
            ``"recall['gold'] >= 0.9"`` is on one of them. Only methods that decide for them can be recommended.
        confidence: The probability with which the requirements must hold on new rows, as in ``MetricClassifier``.
        calibration: The share of each fold's training rows, such as 0.3, for choosing decisions, as in
            ``MetricClassifier``. Models do not train on these rows. Predictions of other programs need none.
        sample_weight: Name of a column, or one weight per row: models are trained with it, and all values count by it.
            Rows of weight 0 are left out. A column that is named here is not learned from.
        groups: Name of a column, or one value per row. Rows with the same value stay on one side of a split. A column
            that is named here is not learned from.
        time: Name of a column of dates or numbers, or one value per row. Rows are sorted by it, and every fold is
            judged by models of earlier rows; the first rows are only learned from. A column that is named here is not
            learned from.
        pos_label: The positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the class
            with fewer rows.
        average: Average of the metric over several classes: "macro", "micro" or "weighted".
        folds: Number of folds.
        folder: Where finished trainings are kept. An interrupted comparison continues there, and a comparison for
            another metric reuses the trainings that do not depend on it. A folder with trainings of another table or
            with other options is refused with what has changed. Models of your own are known by their parameters: if
            you change the code of a class, choose another folder. By default nothing is kept.
        name: Name of the table in the report.
        time_budget: Seconds of each training of metricfit's; None for no limit. A model that would not be ready in time
            is left out. Boosted trees and your own models are always trained.
        seed: Seed of the folds and of every method.
        jobs: Number of trainings at a time; -1 for one per core.
        backend: Backend of joblib: "loky" for processes on this machine, "ray" or "dask" for several machines.
        progress: Called after every training with a ``metricfit.runs.Progress``.

    Returns:
        The rows, the verdict and the recommended method; ``report(path)`` writes them as an HTML page, ``to_frame()``
        as a table, and ``classifier()`` is the recommended method, to be fitted on all rows.

    Raises:
        InvalidValueError: If the table, the target or an option cannot be used; the message says why.
        CellError: If ``folder`` holds trainings of another table or with other options, or a training failed.

    Example:
        >>> import metricfit, numpy as np, pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> table = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]).assign(y=lambda t: t["a"] > 0.5)
        >>> from sklearn.naive_bayes import GaussianNB
        >>> result = metricfit.compare(table, "y", "f1", methods=[("mine", GaussianNB())], folds=2)
        >>> sorted(row.name for row in result.rows)[:1] + sorted(row.name for row in result.rows)[-3:]
        ['LightGBM as it comes', 'mine', 'mine, tuned', 'none positive']
    """
    check_backend(jobs, backend)
    check_calibration(calibration)
    metric_name, asked = name_of_metric(metric), requirement_texts(subject_to)
    rows, times = read_rows(table, target, groups, time, pos_label, folds, sample_weight)
    numbers, classes = rows.numbers, tuple(str(label) for label in rows.labels)
    required = class_requirements(as_requirements(subject_to), len(classes), names=classes)
    columns = check_metric(metric_name, average, rows, asked, required)
    names, own = split_methods(methods, rows.X)
    outside = [read_predictions(key, values, rows.labels, rows.total) for key, values in (predictions or {}).items()]
    outside = [found.take(rows.order) for found in outside]
    check_names([*(model.name for model in own), *(model.name for model in outside)])
    chosen = choose_methods(
        names,
        networks=networks,
        classes=len(classes),
        constrained=bool(asked),
        row_costs=bool(columns),
        table=rows.X,
    )
    threads = threads_per_job(jobs) or threads_of(-1)
    compared: list[Compared] = [lightgbm_as_it_comes(seed, threads, len(numbers)), *chosen, *own, *outside]
    splits, notes = split_rows(rows, folds, seed=seed, outside=outside)
    task = TrainingTask(
        rows, splits, metric_name, average, required, asked, confidence, calibration, seed, time_budget, threads
    )
    check_parts(task)
    if rows.weight is not None:
        notes += [_without_weights(model) for model in own if weight_parameter(model.estimator) is None]
    table_facts = describe_table(rows.X, numbers, classes, rows.groups, rows.weight)
    names_of_columns: dict[str, Any] = {"target": rows.target, "group": rows.group, "time": rows.time}
    description = table_facts | {
        "positive": classes[1] if len(classes) == 2 else None,
        **names_of_columns,
        "folds": folds,
        "seed": seed,
        "time_budget": time_budget,
        "metric": metric_name,
        "average": average,
        "subject_to": asked,
        "confidence": confidence,
        "calibration": calibration,
        "methods": [method.name for method in compared],
    }
    cells = task.cells(name, hash_bytes(json.dumps(table_facts, sort_keys=True).encode()), compared)
    with cell_folder(folder) as place:
        continue_run(place, name, description)
        prepare = load_networks if any(method.is_network for method in chosen) else None
        try:
            reports = run(cells, task.train, place, jobs=jobs, backend=backend, prepare=prepare, watch=progress)
        finally:
            forget_encoded_fold()
    trained = {(cell.training, cell.fold): read_training(cell, reports[cell.name]) for cell in cells}
    by_row, left_out = judge_folds(task, compared, trained)
    tested, decisions = np.sort(np.concatenate([test for _, test in splits])), pooled_decisions(by_row, splits)
    weight = rows.of(rows.weight, tested)
    yours = {model.name: YOURS for model in compared[1 + len(chosen) :]}
    judged_by = get_metric(metric_name)
    by_fold = FoldTest({key: [each.value for each in found] for key, found in by_row.items()}, judged_by)
    costs = row_costs(judged_by, columns, len(numbers)).take(tested) if columns else None
    test: PairTest = by_fold
    if rows.groups is None:
        test = RowTest.of(decisions, numbers[tested], average, by_fold, weight, costs)
    standing = standings(
        by_row,
        judged_by,
        test=test,
        required=bool(asked),
        complexity=COMPLEXITY | yours | {key + TUNED: YOURS + 1 for key in yours},
        plain={*yours, *PLAIN},
    )
    judged = [
        replace(row, requirements=judge_pooled(decided.decided, numbers[tested], len(classes), required, weight))
        if (decided := decisions.get(row.name)) is not None
        else row
        for row in standing
    ]
    advice = advise(judged, metric_name, test=test)
    return Comparison(
        metric_name,
        judged,
        advice.text,
        numbers[tested],
        advice.row.name,
        details=advice.details,
        subject_to=tuple(asked),
        confidence=confidence,
        average=average,
        notes=(*notes, *left_out),
        name=name,
        classes=classes,
        costs=costs,
        decisions=decisions,
        groups=rows.groups,
        weight=weight,
        calibration=calibration,
        periods=() if times is None else tuple(_periods(splits, times, judged)),
        **names_of_columns,
        models={model.name: model for model in compared if not isinstance(model, Method)},
        positive=rows.labels.tolist()[1] if len(classes) == 2 else None,
    )


def _periods(splits: Splits, times: pd.Series, rows: Sequence[ComparisonRow]) -> Iterator[FoldPeriod]:
    """Yield the values of each fold."""
    for fold, (_, test) in enumerate(splits):
        first, last = (short_time(times[test[place]]) for place in (0, -1))
        yield FoldPeriod(first, last, len(test), {row.name: row.values[fold] for row in rows})


@contextmanager
def cell_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Give the folder that keeps the trainings, or a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="metricfit-compare-") as temporary:
        yield Path(temporary)


def name_of_metric(metric: str | Metric) -> str:
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


def requirement_texts(subject_to: Requirements | None) -> list[str]:
    """Return the requirements as text, after checking them."""
    as_requirements(subject_to)
    if subject_to is None:
        return []
    several = [subject_to] if isinstance(subject_to, (str, Requirement)) else subject_to
    return [str(requirement) for requirement in several]


def check_parts(task: TrainingTask) -> None:
    """Refuse folds whose parts lack a class or are too small for a confidence, before anything is trained.

    Raises:
        InvalidValueError: The rows do not suffice.
    """
    rows = task.rows
    for fold, (train, _) in enumerate(task.splits):
        learned, apart, _ = task.parts(fold)
        for part in (learned, apart) if len(apart) else ():
            there = np.bincount(rows.numbers[part], minlength=len(rows.labels))
            if not there.all():
                raise InvalidValueError(
                    f"calibration={task.calibration:g} leaves no row of class {quote(rows.labels[there.argmin()])} in "
                    "a part of the training rows; use fewer folds or another share"
                )
        if task.confidence is not None:
            chosen = apart if len(apart) else train
            groups = rows.of(rows.groups, chosen)
            checked_guarantee(task.requirements, rows.numbers[chosen], task.confidence, groups=groups)


def _without_weights(model: OwnModel) -> str:
    return f"{model.name} takes no weights in training; its rows count by them where it is judged"


def read_rows(
    table: Any, target: Any, groups: Any, time: Any, pos_label: Any, folds: int, weight: Any = None
) -> tuple[ComparedRows, pd.Series | None]:
    """Return the features, the labels with their class numbers, and the groups of a table, and the times of its rows.

    Args:
        table: A pandas or polars DataFrame, or an array.
        target: Name of a column, or the labels themselves.
        groups: Name of a column, one value per row, or None.
        time: Name of a column, one value per row, or None.
        pos_label: The positive class of two, or None to choose it.
        folds: The number of folds; every class needs a row in each.
        weight: Name of a column, one value per row, or None.

    Raises:
        InvalidValueError: A column is missing or cannot be used, a class has too few rows, or ``pos_label`` is given
            for several classes.
    """
    if groups is not None and time is not None:
        raise InvalidValueError("groups= and time= both say how rows are split into folds; give one of them")
    table = with_rows(table)
    frame = to_pandas(table) if hasattr(table, "to_pandas") else pd.DataFrame(table)
    frame = frame.rename(columns=str)
    y, target_name = _column(frame, target, "target")
    columns = {"groups": groups, "time": time, "sample_weight": weight}
    aside = {name: _column(frame, column, name) for name, column in columns.items() if column is not None}
    named = {"target": target} | columns
    first = {column: name for name, column in reversed(named.items()) if isinstance(column, str)}
    for name, column in named.items():
        if isinstance(column, str) and first[column] != name:
            raise InvalidValueError(f"{first[column]} and {name} both name the column {quote(column)}; use another one")
    X, order = frame.drop(columns=list(first)), np.arange(len(frame))
    if X.shape[1] == 0:
        raise InvalidValueError("the table has no column to learn from")
    values = {name: column for name, (column, _) in aside.items()}
    weights = checked_weights(values.get("sample_weight"), frame)
    if weights is not None:
        order = np.flatnonzero(weights)
    if time is not None:
        order = order[order_by_time(values["time"].iloc[order].rename(aside["time"][1]))]
    X, y = X.iloc[order].reset_index(drop=True), y.iloc[order].reset_index(drop=True)
    classes, counts = classes_of(np.asarray(y)), pd.Series(np.asarray(y)).value_counts()
    if counts.iloc[-1] < folds:
        raise InvalidValueError(
            f"the class {quote(counts.index[-1])} has {counts.iloc[-1]} rows, fewer than {folds} folds; use fewer folds"
        )
    labels = classes[order_of(classes, choose_positive_class(np.asarray(y), pos_label), declared_order(y))]
    group = values["groups"].to_numpy()[order] if "groups" in values else None
    times = values["time"].iloc[order].reset_index(drop=True) if "time" in values else None
    group_name, time_name = (aside[name][1] if name in aside else None for name in ("groups", "time"))
    kept = None if weights is None else weights[order]
    names, numbers = (target_name, group_name, time_name), numbers_of(y, labels)
    return ComparedRows(X, y, group, kept, order, len(frame), *names, numbers, labels), times


def _column(frame: pd.DataFrame, column: Any, parameter: str) -> tuple[pd.Series, str]:
    """Return a column that is given by its name or by its values, and what to call it."""
    if isinstance(column, str):
        if column not in frame.columns:
            raise InvalidValueError(f"{parameter}={quote(column)} is not a column of the table")
        values, name = frame[column].reset_index(drop=True), column
    else:
        values = column.to_pandas() if hasattr(column, "to_pandas") else column  # of polars, with its categories
        values = values if isinstance(values, (pd.Series, pd.Categorical)) else np.asarray(values)
        values = pd.Series(values).reset_index(drop=True)
        name = str(getattr(column, "name", None) or parameter)
    if len(values) != len(frame):
        raise InvalidValueError(f"{parameter} has {len(values)} values for a table of {len(frame)} rows")
    missing = int(values.isna().sum())
    if missing:
        raise InvalidValueError(f"{parameter} is missing in {missing} of {len(frame)} rows; remove those rows")
    return values, name


def check_metric(
    name: str, average: str, rows: ComparedRows, asked: Sequence[str], required: Sequence[Requirement]
) -> Mapping[str, Any]:
    """Refuse a metric that the rows do not suit, and return the columns that it takes costs from.

    Raises:
        InvalidValueError: The metric, the average or the requirements cannot be used.
    """
    if average not in ("macro", "micro", "weighted"):
        raise InvalidValueError(f"average is 'macro', 'micro' or 'weighted'; got {quote(average)}")
    metric = get_metric(name)
    judged = [metric, *(requirement.metric for requirement in required)]
    check_has_order(np.sort(rows.labels).tolist(), declared_order(rows.y), judged)
    columns = cost_columns(metric, rows.X)
    check_costs(metric, columns, len(rows.labels), asked)
    return columns


def split_rows(
    rows: ComparedRows, folds: int, *, seed: int, outside: Sequence[OutsidePredictions]
) -> tuple[Splits, list[str]]:
    """Split rows into the folds of a comparison.

    Args:
        rows: The rows.
        folds: Number of folds.
        seed: Seed of stratified folds.
        outside: Predictions of other programs; if they have folds, these are the folds.

    Returns:
        For each fold the training rows and the test rows, and notes about folds that are left out because their
        training rows or their test rows lack a class.

    Raises:
        InvalidValueError: Fewer than two folds can be used.
    """
    numbers, given = rows.numbers, [model.fold for model in outside if model.fold is not None]
    if given:
        pairs = [(np.flatnonzero(given[0] != k), np.flatnonzero(given[0] == k)) for k in np.unique(given[0])]
        if rows.time is not None or not all(np.array_equal(fold, given[0]) for fold in given):
            raise InvalidValueError("time= and all predictions must agree on the folds: there is one column 'fold'")
    elif rows.time is None:
        return split_into_folds(rows.X, numbers, folds, seed=seed, groups=rows.groups), []
    elif len(numbers) <= folds:
        raise InvalidValueError(f"{len(numbers)} rows cannot be split into {folds} folds and the rows before them")
    else:
        pairs = list(TimeSeriesSplit(folds).split(numbers))
    every = len(rows.labels)
    splits = [pair for pair in pairs if all(len(np.unique(numbers[part])) == every for part in pair)]
    dropped = f"{len(pairs) - len(splits)} of {len(pairs)} folds are left out: their training or test rows lack a class"
    if len(splits) < 2:
        raise InvalidValueError(
            f"{dropped}, and a comparison needs two folds; use fewer folds, or leave the column of times out"
        )
    return splits, [] if len(splits) == len(pairs) else [dropped]
