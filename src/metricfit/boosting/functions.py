"""The objective and the evaluations that boosting libraries call with scores, labels and weights.

The libraries have two ways of calling. Their training functions pass ``(scores, rows)``, where the rows are a Dataset
of LightGBM or a DMatrix of XGBoost. Their scikit-learn estimators pass ``(labels, scores, weights)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit._extras import explain_missing
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_labels
from metricfit.core.numerics import NOT_FOR_DUALS, Dual, duals
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.average import averaged, check_average, loss_of_counts
from metricfit.metrics.curves import best_threshold
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts

if TYPE_CHECKING:
    from metricfit.core.steps import Step

#: Smallest second derivative of a row, so that the value of every leaf is finite.
SMALLEST_HESSIAN = 1e-6
#: What XGBoost maximises by the beginning of the name, which would turn a loss around.
#: Names of ours begin with another word.
XGBOOST_PREFIX = "loss_of_"
CATBOOST_REASON = (
    "CatBoost passes an objective at most 1,000 rows at a time, so it never has the counts of all rows: "
    "train with CatBoost's Logloss and boosting.eval_metric(metric, 'catboost'), or with 'lightgbm' or 'xgboost'"
)


def objective(
    metric: str | Metric | Formula,
    library: Library = "lightgbm",
    *,
    strength: float = 0.5,
    step: Step | None = None,
    average: ScalarAverage = "macro",
) -> Objective:
    """Make an objective that trains boosted trees for a metric.

    It is the sum of the cross-entropy of all rows plus ``strength`` times the number of rows times the metric's loss on
    soft counts. By default every row counts with its probability. With weights, the sums are weighted and the
    number of rows is the sum of weights. The second derivative is taken from the cross-entropy, because it is positive;
    the metric's own need not be.

    Start at the prior (``prior_logits``), and apply the sigmoid or the softmax to what the trees predict: with an
    objective that is a function, libraries leave out the start, and most of them the sigmoid.

    Args:
        metric: A metric, its name or a function of Counts. A metric of the confusion matrix needs torch.
        library: "lightgbm" or "xgboost".
        strength: Weight of the metric's loss. 0 is the cross-entropy alone.
        step: The soft decision, one of ``metricfit.steps``; by default a row counts with its probability.
        average: The average over several classes.

    Returns:
        A function that the training functions (``lightgbm.train``, ``xgboost.train``) and the scikit-learn estimators
        of both libraries take as their objective. Two classes have scores ``(n,)``, several ``(n, c)``. Labels are
        class numbers, of which 1 is the positive one of two; weights are used. It can be pickled if the metric can.

    Raises:
        InvalidValueError: If the library is not known, or is CatBoost, which passes parts of the rows; if the strength
            is below 0, the step is Annealed, or the metric or the average cannot be used.

    Example:
        >>> import lightgbm
        >>> import numpy as np
        >>> from metricfit.boosting import prior_logits
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> y = x[:, 0] > 1
        >>> rows = lightgbm.Dataset(x, y, init_score=prior_logits(y, rows=200))
        >>> trees = lightgbm.train({"objective": objective("f1"), "verbose": -1}, rows, num_boost_round=10)
        >>> trees.num_trees()
        10
    """
    if library == "catboost":
        raise InvalidValueError(CATBOOST_REASON)
    check_library(library, CALLS_WITH_ALL_ROWS)
    if not 0 <= strength < float("inf"):
        raise InvalidValueError(f"strength is a number of at least 0; got {quote(strength)}")
    if step is not None:
        from metricfit.core.steps import Annealed  # whoever made the step has imported torch

        if isinstance(step, Annealed):
            raise InvalidValueError("an Annealed step stays at its start, because boosting does not advance it")
    return Objective(_read_metric(metric, average), library, strength, step, average)


def _read_metric(metric: str | Metric | Formula, average: ScalarAverage) -> Metric:
    found = check_of_counts(get_metric(metric))
    check_average(found, average)
    if average is None:
        raise InvalidValueError("boosting needs one number: average is 'macro', 'micro' or 'weighted'")
    return found


@dataclass(frozen=True, repr=False)
class Objective:
    """An objective of boosted trees; see ``objective``."""

    metric: Metric
    library: Library
    strength: float
    step: Step | None
    average: ScalarAverage

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Floats, Floats]:
        """Return the gradient and the second derivative for each score.

        Args:
            first: The raw scores, or the labels if ``second`` is the scores.
            second: A Dataset of LightGBM, a DMatrix of XGBoost, or the raw scores.
            sample_weight: Weights of the rows, if ``second`` is the scores.

        Returns:
            Two arrays of the shape of the scores.

        Raises:
            InvalidTypeError: If the rows belong to another library.
            InvalidValueError: If the labels are not class numbers, or scores, labels and weights do not fit.
        """
        rows = read_rows(first, second, sample_weight, self.library)
        target, weight = _target_and_weight(rows)
        p, q = _probabilities(rows.scores)
        gradient, hessian = weight * (p - target), np.maximum(weight * p * q, SMALLEST_HESSIAN)
        if self.strength:
            total = len(rows.label) if rows.weight is None else rows.weight.sum()
            gradient = gradient + self.strength * total * self._gradient_of_metric(rows)
        return gradient, hessian

    def __repr__(self) -> str:
        return f"objective({self.metric.name!r}, {self.library!r}, strength={self.strength})"

    def _gradient_of_metric(self, rows: LibraryRows) -> Floats:
        """Return the gradient of the metric's loss on soft counts by the scores."""
        if self.step is None and not self.metric.needs_matrix and not isinstance(self.metric, GroupGap):
            try:
                return self._by_dual_numbers(rows)
            except NOT_FOR_DUALS:
                if find_spec("torch") is None:
                    raise
        return self._by_torch(rows)

    def _by_dual_numbers(self, rows: LibraryRows) -> Floats:
        """Differentiate by the counts with dual numbers, and the counts by the scores.

        For two classes dp/dz = p (1 - p), for several dp_j/dz_k = p_j (1[j = k] - p_k).
        """
        target, weight = _target_and_weight(rows)
        p, q = _probabilities(rows.scores)
        positive, negative = weight * target, weight * (1 - target)
        cells = [
            (part * share).sum(axis=0) for part, share in ((positive, p), (negative, p), (positive, q), (negative, q))
        ]
        with np.errstate(all="ignore"):  # a formula divides by 0 where it is not defined
            numbers: Any = duals([float(cell) for cell in cells] if p.ndim == 1 else cells)
            value: Any = loss_of_counts(self.metric, Counts(*numbers, exclusive=True), self.average)
        if type(value) is not Dual:
            raise TypeError("the formula does not depend on the counts by dual numbers")
        by_tp, by_fp, by_fn, by_tn = value.slopes
        by_share = positive * (by_tp - by_fn) + negative * (by_fp - by_tn)
        if p.ndim == 1:
            return by_share * p * q
        return p * (by_share - (p * by_share).sum(axis=1, keepdims=True))

    def _by_torch(self, rows: LibraryRows) -> Floats:
        """Differentiate with torch, for other steps, for metrics of the confusion matrix and for formulas in torch."""
        with explain_missing(f"the objective for {self.metric.name}", ["torch"], "metricfit[torch]"):
            import torch

            from metricfit.core.steps import Identity
            from metricfit.losses.metric_loss import MetricLoss
        step = Identity() if self.step is None else self.step
        loss = MetricLoss(
            self.metric,
            step=step,
            # Identity does not look at the threshold, and a number costs less than a dynamic threshold.
            threshold=0.5 if isinstance(step, Identity) else None,
            task="binary" if rows.scores.ndim == 1 else "multiclass",
            average=self.average,
            sync=False,
            validate=False,
        )
        weight = None if rows.weight is None else torch.from_numpy(rows.weight)
        with torch.enable_grad():
            logits = torch.tensor(rows.scores, requires_grad=True)
            value = loss(logits, torch.from_numpy(rows.label), weight)
            (gradient,) = torch.autograd.grad(value, logits)
        return gradient.numpy()


def _target_and_weight(rows: LibraryRows) -> tuple[Floats, Any]:
    """Return the labels as numbers of the shape of the scores, and the weights in a shape that fits them."""
    if rows.scores.ndim == 1:
        return rows.label.astype(np.float64), 1.0 if rows.weight is None else rows.weight
    return np.eye(rows.scores.shape[1])[rows.label], 1.0 if rows.weight is None else rows.weight[:, None]


def _probabilities(z: Floats) -> tuple[Floats, Floats]:
    """Return the probabilities of the classes, and of the other ones."""
    if z.ndim == 1:
        return np.exp(-np.logaddexp(0, -z)), np.exp(-np.logaddexp(0, z))
    shares = np.exp(z - z.max(axis=1, keepdims=True))
    p = shares / shares.sum(axis=1, keepdims=True)
    return p, 1 - p


def eval_metric(
    metric: str | Metric | Formula,
    library: Library = "lightgbm",
    *,
    threshold: float | None = None,
    average: ScalarAverage = "macro",
) -> EvalMetric:
    """Make an evaluation that early stopping can follow: the metric at its exact best threshold on the held-out rows.

    The best threshold is found anew in every round, by one sort, so that stopping does not depend on how far the
    scores have moved. Several classes are decided by their largest score. The value is optimistic, because the
    threshold is chosen on the rows that it is measured on; choose the final threshold on other rows.

    Args:
        metric: A metric, its name or a function of Counts.
        library: "lightgbm", "xgboost" or "catboost".
        threshold: A fixed threshold of two classes' scores, in place of the best one. Scores are probabilities with
            the built-in objectives of LightGBM and XGBoost, and logits with an objective that is a function and in
            CatBoost: the probability 0.5 is the logit 0.
        average: The average over several classes.

    Returns:
        For LightGBM a function: the ``feval`` of ``lightgbm.train``, and ``eval_metric`` in the ``fit`` of its
        estimators. It tells LightGBM whether higher is better. For XGBoost a function: the ``custom_metric`` of
        ``xgboost.train``, and the ``eval_metric`` of its estimators. XGBoost minimises functions, so this one gives the
        metric's loss, 1 - value where higher is better. For CatBoost an object: the ``eval_metric`` of its estimators.

    Raises:
        InvalidValueError: If the library is not known, or the metric, the threshold or the average cannot be used.

    Example:
        >>> labels, scores = np.array([1, 0, 1, 0]), np.array([0.9, 0.6, 0.4, 0.1])
        >>> eval_metric("f1", "lightgbm")(labels, scores)
        ('f1', 0.8, True)
        >>> round(eval_metric("f1", "xgboost")(labels, scores), 6)
        0.2
    """
    check_library(library, (*CALLS_WITH_ALL_ROWS, "catboost"))
    if threshold is not None and not np.isfinite(threshold):
        raise InvalidValueError(f"threshold is a number, or None for the best one; got {quote(threshold)}")
    made = CatBoostEvalMetric if library == "catboost" else EvalMetric
    return made(_read_metric(metric, average), library, threshold, average)


@dataclass(frozen=True, repr=False)
class EvalMetric:
    """The value of a metric on rows, at the best threshold or at a fixed one; see ``eval_metric``."""

    metric: Metric
    library: Library
    threshold: float | None
    average: ScalarAverage

    def __repr__(self) -> str:
        return f"eval_metric({self.metric.name!r}, {self.library!r})"

    def value(self, rows: LibraryRows) -> float:
        """Return the value of the metric on these rows."""
        if rows.scores.ndim == 2:
            if self.threshold is not None:
                raise InvalidValueError("threshold is for two classes: several are decided by their largest score")
            counts = self._count(rows, rows.scores.argmax(axis=1), rows.scores.shape[1])
            return float(averaged(self.metric, counts, self.average))
        if self.threshold is None:
            return best_threshold(rows.scores, rows.label, self.metric, weight=rows.weight).value
        return float(self.metric(self._count(rows, rows.scores >= self.threshold, None)).item())

    def _count(self, rows: LibraryRows, decided: NDArray[Any], classes: int | None) -> Counts:
        called, matrix = decided.astype(np.int64), self.metric.needs_matrix
        return count_labels(called, rows.label, num_classes=classes, weight=rows.weight, matrix=matrix)

    @property
    def __name__(self) -> str:
        """The name in the library's log; XGBoost splits its log at blanks and colons."""
        name = self.metric.name
        return XGBOOST_PREFIX + name.replace(" ", "").replace(":", "") if self.library == "xgboost" else name

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> Any:
        """Return the evaluation in the form that the library expects from this way of calling.

        Args:
            first: The scores, or the labels if ``second`` is the scores.
            second: A Dataset of LightGBM, a DMatrix of XGBoost, or the scores.
            sample_weight: Weights of the rows, if ``second`` is the scores.

        Returns:
            For LightGBM the name, the value and whether higher is better; for ``xgboost.train`` the name and the loss;
            for XGBoost's estimators the loss.

        Raises:
            InvalidTypeError: If the rows belong to another library.
            InvalidValueError: If the labels are not class numbers, or scores, labels and weights do not fit.
        """
        value = self.value(read_rows(first, second, sample_weight, self.library))
        if self.library == "lightgbm":
            return self.__name__, value, not self.metric.minimize
        loss = value if self.metric.minimize else 1 - value
        return (self.__name__, loss) if is_rows_object(second) else loss


class CatBoostEvalMetric(EvalMetric):
    """An evaluation for CatBoost; see ``eval_metric``."""

    def is_max_optimal(self) -> bool:
        """Return whether higher is better."""
        return not self.metric.minimize

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """Return the value, with the weight 1.

        Args:
            approxes: The logits: one array for two classes, one per class for several.
            target: The labels.
            weight: Weights of the rows, or None.

        Returns:
            The value and the number 1.

        Raises:
            InvalidValueError: If the labels are not class numbers.
        """
        scores = np.stack([np.asarray(scores, dtype=np.float64) for scores in approxes], axis=1)
        return self.value(check_rows(scores, target, weight)), 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """Return the value: CatBoost passes all rows of a set at once, so there is nothing to sum."""
        return error


# CatBoost compiles the methods with numba where it is installed, unless they are marked. Numba cannot compile metrics.
for _method in ("is_max_optimal", "evaluate", "get_final_error"):
    setattr(getattr(CatBoostEvalMetric, _method), "no_jit", True)  # noqa: B010


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Library = Literal["lightgbm", "xgboost", "catboost"]

#: A class without rows starts as if it had this share.
SMALLEST_SHARE = 1e-6
#: Libraries that call a function with all rows at once.
CALLS_WITH_ALL_ROWS: tuple[Library, ...] = ("lightgbm", "xgboost")


class LibraryRows(NamedTuple):
    """Rows in one form.

    Attributes:
        scores: ``(n,)`` for two classes, ``(n, c)`` for several.
        label: Class numbers ``(n,)``.
        weight: One weight per row, or None.
    """

    scores: Floats
    label: Integers
    weight: Floats | None


def is_rows_object(second: object) -> bool:
    """Return whether a library passes its own container of rows, as its training function does."""
    return hasattr(second, "get_label")


def read_rows(first: Any, second: Any, weight: Any, library: Library) -> LibraryRows:
    """Read and check what a library passes, in either way of calling.

    Args:
        first: The scores if the other is a container of rows, otherwise the labels.
        second: A Dataset, a DMatrix, or the scores.
        weight: Weights of the rows, of a scikit-learn estimator.
        library: The library that the function was made for.

    Returns:
        Scores, labels and weights.

    Raises:
        InvalidTypeError: If the rows belong to another library.
        InvalidValueError: If scores, labels and weights do not fit one another, or the labels are not class numbers.
    """
    if not is_rows_object(second):
        return check_rows(second, first, weight)
    caller = type(second).__module__.partition(".")[0]
    if caller != library and caller in CALLS_WITH_ALL_ROWS:
        raise InvalidTypeError(f"this was made for {library} and is called by {caller}: make it for {caller!r}")
    return check_rows(first, second.get_label(), second.get_weight())


def check_rows(scores: Any, label: Any, weight: Any) -> LibraryRows:
    """Check scores, labels and weights against one another.

    Raises:
        InvalidValueError: If they do not fit one another, or the labels are not class numbers.

    Example:
        >>> check_rows([0.5, -1.0], [1.0, 0.0], None).label
        array([1, 0])
    """
    z = np.asarray(scores, dtype=np.float64)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    if z.ndim not in (1, 2):
        raise InvalidValueError(f"scores have the shape (n,) for two classes and (n, c) for several; got {z.shape}")
    if label is None:
        raise InvalidValueError("the rows have no labels")
    y = np.asarray(label)
    if y.shape[:1] != z.shape[:1] or len(z) == 0:
        raise InvalidValueError(f"there must be a label for each row: got scores {z.shape} and labels {y.shape}")
    if not np.isfinite(z).all():
        raise InvalidValueError("some scores are NaN or infinite: lower the learning rate, or look at the features")
    return LibraryRows(z, check_labels(y, 2 if z.ndim == 1 else z.shape[1]), check_weights(weight, len(y)))


def check_labels(label: Any, classes: int | None) -> Integers:
    """Return labels as class numbers, if that is what they are."""
    y = np.asarray(label)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise InvalidValueError(
            f"labels are class numbers 0, 1, ..., one per row; got {y.dtype} of shape {y.shape}. "
            "scikit-learn's LabelEncoder makes numbers of names"
        )
    with np.errstate(invalid="ignore"):  # NaN is refused below
        whole = y.astype(np.int64)
    if not (whole == y).all():
        raise InvalidValueError("labels are class numbers 0, 1, ...; some are NaN or not whole")
    highest = int(whole.max(initial=0))
    if int(whole.min(initial=0)) < 0 or (classes is not None and highest >= classes):
        expected = "0, 1, ..." if classes is None else "0 and 1" if classes == 2 else f"0 to {classes - 1}"
        hint = " For several classes set num_class; with XGBoost's own loss, multi:softprob." if classes == 2 else ""
        raise InvalidValueError(f"labels are {expected} here; got {whole.min()} to {highest}.{hint}")
    return whole


def check_weights(weight: Any, rows: int) -> Floats | None:
    """Return one weight per row, or None; XGBoost passes an empty array for no weights."""
    if weight is None or np.size(weight) == 0:
        return None
    w = np.asarray(weight, dtype=np.float64)
    if w.shape != (rows,):
        raise InvalidValueError(f"there must be one weight per row: got {rows} rows and weights {w.shape}")
    if not (np.isfinite(w) & (w >= 0)).all():
        raise InvalidValueError("weights must be finite and at least 0")
    return w


def check_library(library: object, allowed: Sequence[Library]) -> None:
    """Raise an error for a library that is not one of these."""
    if library not in allowed:
        listed = " or ".join(map(repr, allowed))
        raise InvalidValueError(f"library is {listed}; got {quote(library)}")


def prior_logits(
    y: Any, sample_weight: Any = None, *, classes: int | None = None, rows: int | None = None
) -> NDArray[np.float64]:
    """Return the logits of the classes' shares, where boosting for a metric should start.

    The counts of a metric say little while all probabilities are 0.5, which is about where libraries start with an
    objective that is a function. With ``rows``, the result is the ``init_score`` of LightGBM and the ``base_margin`` of
    XGBoost.

    Args:
        y: Class numbers from 0, of the training rows.
        sample_weight: One weight per row, at least 0; by default all are 1.
        classes: The number of classes; by default the largest class number plus one, and at least 2.
        rows: Repeat the logits for this many rows.

    Returns:
        The log-odds of class 1, ``(1,)``, for two classes; the logarithms of the shares, ``(c,)``, for several. With
        ``rows``, the same for each row: ``(rows,)`` or ``(rows, c)``.

    Raises:
        InvalidValueError: If there are no rows, the labels are not class numbers, or the weights cannot be used.

    Example:
        >>> prior_logits([0, 0, 0, 1]).round(2)
        array([-1.1])
        >>> prior_logits([0, 0, 0, 1], rows=2).round(2)
        array([-1.1, -1.1])
    """
    labels = np.asarray(y)
    if classes is not None and classes < 2:
        raise InvalidValueError(f"there are at least 2 classes; got classes={classes}")
    if labels.size == 0:
        raise InvalidValueError("y is empty: there are no rows to take the shares of")
    label = check_labels(labels, classes)
    number = max(2, int(label.max()) + 1) if classes is None else classes
    shares = np.bincount(label, weights=check_weights(sample_weight, len(label)), minlength=number)
    if not shares.sum() > 0:
        raise InvalidValueError("all weights are 0")
    shares = np.maximum(shares / shares.sum(), SMALLEST_SHARE)
    logits = np.asarray([np.log(shares[1] / shares[0])] if number == 2 else np.log(shares))
    if rows is None:
        return logits
    return np.full(rows, logits[0]) if number == 2 else np.tile(logits, (rows, 1))
