"""One number for labels, logits or an estimator: ``Metric.score``, ``metricfit.score`` and ``metricfit.scorer``."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit.core.arrays import is_array, is_floating, is_tensor, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_hard, count_labels
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical, read_task
from metricfit.core.types import Average, ScalarAverage, Task, Thresholds, ZeroDivision
from metricfit.core.validation import check_nan_logits
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics import registry
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.class_order import check_has_order, declared_order
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.ranking import RankingMetric, get_measure
from metricfit.metrics.row_cost import check_of_counts

#: Two classes of which the last is the positive one.
KNOWN_PAIRS: tuple[tuple[Any, Any], ...] = ((0, 1), (-1, 1))
#: How two classes are written where others write 0 and 1: masks of images, and labels of margins.
OTHER_PAIRS = ((0, 255), (-1, 1))


def score(
    logits_or_labels: Any,
    target: Any,
    metric: str | Metric | RankingMetric | Formula,
    *,
    task: Task | None = None,
    threshold: Thresholds = None,
    weight: Any = None,
    average: ScalarAverage = "macro",
    ignore_index: int | None = None,
    zero_division: ZeroDivision = None,
    pos_label: Any = None,
    top_k: int | None = None,
) -> float:
    """Compute a metric of the outputs of a model, read like the input of a loss, or of predicted labels.

    It is the right one for outputs or labels that are in memory, and one number.

    Args:
        logits_or_labels: Logits, tensors or arrays of floats, as ``Counts.hard`` takes them. Anything else is labels.
        target: The labels.
        metric: A Metric, its name or a function of Counts; or a measure of scores such as "auroc". One of
            scikit-learn's scoring names, such as "f1_weighted", sets the average too.
        task: "binary", "multiclass" or "multilabel", for logits whose shapes allow two of them.
        threshold: Where decisions of logits are made, as in ``Counts.hard``.
        weight: One weight per row.
        average: The average over several classes or labels.
        ignore_index: Rows of logits with this label are not counted.
        zero_division: What a class counts for where its metric is 0/0, as in ``metrics.averaged``.
        pos_label: Which of two predicted labels is the positive one, as in ``Metric.score``.
        top_k: Of several classes, a row is decided right if its class is among this many largest logits, and otherwise
            as its largest one says. Of several labels, every row has exactly this many: those with the largest logits.

    Returns:
        The value.

    Raises:
        InvalidValueError: The shapes, labels or settings do not fit each other.
        InvalidTypeError: The metric is not one of decisions or of scores.

    Example:
        >>> score(np.array([2.0, -1.0, 0.5]), np.array([1, 0, 0]), "f1")
        0.6666666666666666
        >>> score([1, 0, 1], [1, 0, 0], "f1"), score(np.array([2.0, -1.0, 0.5]), np.array([1, 0, 0]), "auroc")
        (0.6666666666666666, 1.0)
        >>> score(np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]]), np.array([2, 1]), "accuracy", top_k=2)
        0.5
    """
    measure, average, every_class = read_scoring(metric, average)
    if not (is_array(logits_or_labels) and is_floating(logits_or_labels)):
        if isinstance(measure, RankingMetric):
            raise InvalidTypeError(f"{measure.name} ranks scores: pass floating-point logits, not labels")
        if top_k is not None:
            raise InvalidTypeError("top_k decides by the largest logits: pass floating-point logits, not labels")
        rules = {"pos_label": pos_label, "zero_division": zero_division, "every_class": every_class}
        return float(score_labels(measure, target, logits_or_labels, weight, average, **rules))
    settings = CountSettings(task=task, threshold=threshold, ignore_index=ignore_index)
    if top_k is not None:
        if threshold is not None or isinstance(measure, RankingMetric):
            raise InvalidValueError(
                "top_k decides by the largest logits: leave threshold out, and name a metric of counts"
            )
        counts = count_top(
            logits_or_labels, target, top_k, settings, weight, matrix=check_of_counts(measure).needs_matrix
        )
        return float(averaged(measure, counts, average, zero_division=zero_division))
    if isinstance(measure, RankingMetric):
        batch = canonical(logits_or_labels, target, settings, weight=weight, arrays=True)
        return measure.measure_samples(batch, average)
    check_average(measure, average)
    matrix = check_of_counts(measure).needs_matrix
    counts = count_hard(logits_or_labels, target, settings, weight=weight, matrix=matrix)
    return float(averaged(measure, counts, average, zero_division=zero_division))


def count_top(
    logits: Any, target: Any, k: int, settings: CountSettings, weight: Any = None, *, matrix: bool = False
) -> Counts:
    """Count the decisions of the k largest logits of every row, of several classes or labels.

    Args:
        logits: Logits ``(n, c)``.
        target: Class numbers ``(n,)``, or labels 0 and 1 ``(n, c)``.
        k: How many of the largest logits count.
        settings: The task, and the label that is ignored.
        weight: One weight per row.
        matrix: Whether to count the confusion matrix of several classes.

    Returns:
        The counts.

    Raises:
        InvalidValueError: There are not so many logits, or the shapes are not of classes or labels.
    """
    z, y = to_numpy(logits, np.float64), to_numpy(target)
    task = read_task(z, y, settings.task)
    if task == "binary" or z.ndim != 2 or y.ndim > 2 or y.ndim != (2 if task == "multilabel" else 1):
        raise InvalidValueError(
            f"top_k is for logits (n, c) of several classes with class numbers (n,), or of labels (n, c); got logits "
            f"{z.shape} with target {y.shape}"
        )
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= z.shape[1]:
        raise InvalidValueError(f"top_k is a whole number from 1 to {z.shape[1]}, got {quote(k)}")
    check_nan_logits(z)
    place = np.argsort(np.argsort(-z, axis=1, kind="stable"), axis=1)
    if task == "multilabel":
        if settings.ignore_index is not None:
            raise InvalidValueError("top_k counts all labels of a row: leave ignore_index out")
        return _count_columns(y, (place < k).astype(np.int64), weight)
    kept = np.ones(len(y), bool) if settings.ignore_index is None else y != settings.ignore_index
    place, y, weight = place[kept], y[kept], None if weight is None else to_numpy(weight)[kept]
    if len(y) and not ((y >= 0) & (y < z.shape[1])).all():
        raise InvalidValueError(f"class numbers lie in 0..{z.shape[1] - 1}, got {y.min()} to {y.max()}")
    decided = np.where(place[np.arange(len(y)), y] < k, y, place.argmin(1))
    return count_labels(decided, y, num_classes=z.shape[1], weight=weight, matrix=matrix)


def score_labels(
    metric: Metric,
    target: Any,
    predicted: Any,
    weight: Any = None,
    average: Average = "macro",
    *,
    pos_label: Any = None,
    zero_division: ZeroDivision = None,
    every_class: bool = False,
) -> Any:
    """Compute ``Metric.score``, whose arguments these are; ``every_class`` averages over both of two classes too."""
    check_average(metric, average)
    if isinstance(metric, GroupGap):
        raise InvalidTypeError(f"{metric.name} is called on Counts; {metric._remedy}")
    order = declared_order(target)
    y, called = (to_numpy(labels) for labels in (target, predicted))
    y, called = (labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels for labels in (y, called))
    if y.shape != called.shape or y.ndim not in (1, 2) or not len(y):
        raise InvalidValueError(
            f"target has shape {y.shape}, and predicted has {called.shape}; both are (n,) or (n, c)"
        )
    if y.ndim == 2:
        counts = _count_columns(y, called, weight)
    else:
        found = set(y.tolist()) | set(called.tolist())
        if len(found) == 3:
            _check_one_writing(set(y.tolist()), set(called.tolist()))
        classes = sorted(found, key=lambda label: (str(type(label)), label)) if order is None else order
        check_has_order(classes, order, [check_of_counts(metric)])
        several = every_class or metric.of_one_class or len(classes) > 2
        if not several:
            classes = _pair_of(classes, metric, order, pos_label)
        counts, metric = _count_classes(metric, y, called, weight, classes, several=several)
    value = averaged(metric, counts, average, zero_division=zero_division)
    return float(value) if np.ndim(value) == 0 else value


def _check_one_writing(true: set[Any], called: set[Any]) -> None:
    """Refuse two classes that the target and the predictions write in two ways, and that would count as three."""
    for labels, others, name, other in ((true, called, "target", "predicted"), (called, true, "predicted", "target")):
        for pair in OTHER_PAIRS:
            if labels <= set(pair) and not labels <= {0, 1} and others <= {0, 1}:
                raise InvalidValueError(
                    f"{name} is written with {pair[0]} and {pair[1]}, and {other} with 0 and 1, which would be three "
                    f"classes: pass {name} > 0"
                )


def _count_columns(y: Any, called: Any, weight: Any) -> Counts:
    """Count several labels per row."""
    columns = [count_labels(called[:, k], y[:, k], weight=weight) for k in range(y.shape[1])]
    cells = zip(*(counts.tensors for counts in columns), strict=True)
    return Counts(*(np.concatenate(cell) for cell in cells), exclusive=False)


def _count_classes(
    metric: Metric, y: Any, called: Any, weight: Any, classes: list[Any], *, several: bool
) -> tuple[Counts, Metric]:
    """Count classes of any kind, and return the metric with the number of the class that it names."""
    numbers = {label: number for number, label in enumerate(classes)}
    numbered = [np.array([numbers[label] for label in labels.tolist()], np.int64) for labels in (called, y)]
    if metric.class_name is not None and metric.class_index is None:
        if metric.class_name not in numbers:
            raise InvalidValueError(f"{metric.name}: there is no class {metric.class_name!r} among {quote(classes)}")
        metric = metric.of_class(numbers[metric.class_name], metric.class_name)
    num_classes = len(classes) if several else None
    return count_labels(*numbered, num_classes=num_classes, weight=weight, matrix=metric.needs_matrix), metric


def _pair_of(classes: list[Any], metric: Metric, order: list[Any] | None, pos_label: Any) -> list[Any]:
    """Return two classes, the positive one last."""
    if pos_label is not None:
        others = [label for label in classes if label != pos_label]
        if len(others) > 1:
            raise InvalidValueError(f"pos_label is {quote(pos_label)}, and the labels are {quote(classes)}")
        return [*(others or [None]), pos_label]
    for pair in KNOWN_PAIRS:
        if set(classes) <= set(pair):
            return list(pair)
    if metric.whole_matrix or order is not None:
        return classes if len(classes) == 2 else [None, *classes]
    raise InvalidValueError(
        f"{metric.name} is of the positive class, and the labels are {quote(classes)}: say which one with pos_label="
    )


def read_scoring(metric: Any, average: Any) -> tuple[Any, Any, bool]:
    """Return a metric or a measure of scores, the average, and whether it is over both of two classes.

    One of scikit-learn's scoring names, such as "f1_macro", says all three.
    """
    if isinstance(metric, str):
        name, named = registry.split_scoring_name(metric.strip())
        if named is not None:
            return get_measure(name), named, True
        if metric in ("roc_auc_ovo_weighted", "roc_auc_ovr_weighted"):
            return get_measure(metric.removesuffix("_weighted")), "weighted", False
    return get_measure(metric), average, False


class Scorer:
    """A metric as scikit-learn calls it: ``scorer(estimator, X, y)``. Higher is better, so costs are negative.

    ``metricfit.scorer`` makes one.

    Args:
        metric: The metric, or a measure of scores.
        average: The average over several classes or labels.
        pos_label: The positive one of two classes; None for the estimator's, or the default of its labels.
        zero_division: What a class counts for where its metric is 0/0.
        every_class: Whether the average is over both of two classes.
    """

    def __init__(
        self,
        metric: Metric | RankingMetric,
        average: ScalarAverage = "macro",
        pos_label: Any = None,
        zero_division: ZeroDivision = None,
        *,
        every_class: bool = False,
    ) -> None:
        self.metric, self.average, self.pos_label = metric, average, pos_label
        self.zero_division, self.every_class = zero_division, every_class

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the metric of a fitted estimator's decisions, or of its scores.

        Args:
            estimator: The estimator.
            X: The rows.
            y: Their labels.
            sample_weight: One weight per row.

        Returns:
            The value; for a metric where lower is better the negative value.
        """
        pos_label = getattr(estimator, "pos_label_", None) if self.pos_label is None else self.pos_label
        if isinstance(self.metric, RankingMetric):
            return self._rank(self.metric, estimator, X, y, sample_weight, pos_label)
        rules: dict[str, Any] = {"zero_division": self.zero_division, "every_class": self.every_class}
        called = estimator.predict(X)
        value = score_labels(self.metric, y, called, sample_weight, self.average, pos_label=pos_label, **rules)
        return float(-value if self.metric.minimize else value)

    def _rank(self, ranking: RankingMetric, estimator: Any, X: Any, y: Any, weight: Any, pos_label: Any) -> float:
        y = to_numpy(y)
        if y.ndim == 2:
            scores = estimator.predict_proba(X)
            if isinstance(scores, list):  # one array for each label
                scores = np.stack([part[:, 1] for part in scores], 1)
            return float(ranking.measure(scores, y, weight, average=self.average))
        classes = estimator.classes_.tolist()
        if len(classes) > 2:
            numbers = {label: number for number, label in enumerate(classes)}
            y = np.array([numbers[label] for label in y.tolist()])
            return float(ranking.measure(estimator.predict_proba(X), y, weight, average=self.average))
        positive = classes[-1] if pos_label is None else pos_label
        if hasattr(estimator, "decision_function"):
            scores = to_numpy(estimator.decision_function(X))
            scores = scores if positive == classes[-1] else -scores
        else:
            scores = to_numpy(estimator.predict_proba(X))[:, classes.index(positive)]
        return float(ranking.measure(scores, (y == positive).astype(int), weight))

    def __repr__(self) -> str:
        average = "" if self.average == "macro" else f", average={self.average!r}"
        return f"scorer({self.metric.name!r}{average})"


def scorer(
    metric: str | Metric | RankingMetric | Formula,
    *,
    average: ScalarAverage = "macro",
    pos_label: Any = None,
    zero_division: ZeroDivision = None,
) -> Scorer:
    """Make a scikit-learn scorer of a metric, for ``cross_val_score``, ``GridSearchCV`` and the like.

    Args:
        metric: A Metric, its name or a function of Counts; or a measure of scores such as "auroc". One of
            scikit-learn's scoring names, such as "f1_weighted", sets the average too.
        average: The average over several classes or labels.
        pos_label: Which of two classes is the positive one. By default the estimator's ``pos_label_`` if it has one, 1
            of 0 and 1 and of -1 and 1, and True.
        zero_division: What a class counts for where its metric is 0/0, as in ``metrics.averaged``.

    Returns:
        A function of an estimator, rows and labels. Higher is better: metrics where lower is better are negative.

    Raises:
        InvalidValueError: There is no such metric or average.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.model_selection import cross_val_score
        >>> X, y = np.array([[0.0], [9.0]] * 10), np.array([0, 1] * 10)
        >>> cross_val_score(LogisticRegression(), X, y, scoring=scorer("mcc"), cv=2).tolist()
        [1.0, 1.0]
    """
    measure, average, every_class = read_scoring(metric, average)
    if isinstance(measure, Metric):
        check_average(check_of_counts(measure), average)
    return Scorer(measure, average, pos_label, zero_division, every_class=every_class)


def score_estimator(metric: Metric, estimator: Any, *scored: Any, **settings: Any) -> float:
    """Call a metric as scikit-learn calls ``scoring=metrics.mcc``, and refuse labels and logits."""
    if hasattr(estimator, "predict") and len(scored) == 2 and set(settings) <= {"sample_weight"}:
        return scorer(metric)(estimator, *scored, **settings)
    kind = "a tensor" if is_tensor(estimator) else type(estimator).__name__
    raise InvalidTypeError(f"{metric.name} is called on Counts alone, got {kind} and more; {metric._remedy}")
