"""Measures of how well scores rank positives above negatives, as objects like the metrics of decisions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from metricfit.core.arrays import Array
from metricfit.core.types import Average, ScalarAverage
from metricfit.metrics import areas, registry
from metricfit.metrics.areas import ask, auroc_of, average_precision_of
from metricfit.metrics.metric import Bounds, Formula, Metric, get_metric
from metricfit.metrics.metric_parameters import first_paragraph


class RankingMetric:
    """A measure of scores, such as ``metrics.auroc``. It needs no threshold and makes no decisions.

    It has the attributes of a Metric that make sense for it: ``name``, ``minimize``, ``bounds``, ``needs`` and
    ``summary``. Because it is not a formula over counts, it cannot be a MetricLoss or a requirement.

    Args:
        name: The name.
        function: Computes the value from scores, labels, weights and an average.
        needs: Which of "positives" and "negatives" must be present.
        of_questions: Computes the value from the yes-or-no questions of several labels or classes.

    Example:
        >>> from metricfit import metrics
        >>> metrics.auroc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
        0.875
        >>> metrics.auroc.name, metrics.auroc.minimize
        ('auroc', False)
    """

    #: Whether it is measured on scores instead of on counts of decisions.
    is_ranking: ClassVar[bool] = True
    #: Whether lower is better.
    minimize: ClassVar[bool] = False
    #: The smallest and the largest value.
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        needs: frozenset[str],
        of_questions: Callable[..., Array],
    ) -> None:
        self.name = name
        self.needs = needs
        self._function = function
        self._of_questions = of_questions
        self.__doc__ = function.__doc__

    @property
    def summary(self) -> str:
        """The definition in words: the first paragraph of the documentation."""
        return first_paragraph(self.__doc__)

    @property
    def in_pairs(self) -> bool:
        """Whether it compares pairs of exclusive classes, so that several labels have no such value."""
        return self.name == "auroc_ovo"

    def measure(
        self, scores: Array, target: Array, weight: Array | None = None, *, average: Average = "macro"
    ) -> float | Array:
        """Compute the value.

        Args:
            scores: One score per sample ``(n,)``, or for several labels or classes ``(n, c)``: logits or
                probabilities; scores of exclusive classes are probabilities.
            target: One label per score, 0 or 1; for exclusive classes one class number per sample.
            weight: One weight per sample, at least 0; by default all are 1.
            average: The average over several labels or classes; None for one value each.

        Returns:
            The value; for ``average=None`` one per label or class.

        Raises:
            ValueError: The arrays do not fit each other, hold NaN, or lack a class that the measure needs.
        """
        return self._function(scores, target, weight, average=average)

    __call__ = measure

    def measure_samples(self, samples: Any, average: ScalarAverage = "macro", *, warn: bool = True) -> float:
        """Compute the value of logits and labels in their final shape; classes are ranked by their log-odds.

        Args:
            samples: The ``Columns`` or ``Classes`` that ``core.tasks.canonical`` returned.
            average: The average over several labels or classes.
            warn: Whether labels that lack positives or negatives are reported.

        Returns:
            The value.

        Raises:
            ValueError: A single column lacks a class that the measure needs, or labels that do not exclude each other
                would have to be compared in pairs.
        """
        return float(self._of_questions(ask(samples), average, warn=warn))

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return registry.find_ranking, (self.name,)


def _auroc_in_pairs(scores: Array, target: Array, weight: Array | None = None, *, average: Average = "macro") -> Any:
    """The mean over all pairs of exclusive classes of the AUROC of the two (Hand and Till 2001); AUROC of two classes.

    For classes a and b it is the mean of two areas on the samples of these two classes: for the probability of a, and
    for the probability of b. It does not depend on how frequent the classes are.

    Args:
        scores: One probability per sample and class, ``(n, c)``; for two classes also one score per sample ``(n,)``.
        target: One class number per sample.
        weight: One weight per sample, at least 0; by default all are 1.
        average: "macro", or "weighted" by how frequent the two classes of a pair are.

    Returns:
        The mean, from 0 to 1.

    Raises:
        InvalidValueError: The arrays do not fit each other or hold NaN, the probabilities do not sum to 1, or the
            classes do not exclude each other.

    Example:
        >>> from metricfit import metrics
        >>> metrics.auroc_ovo([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.1, 0.3]], [0, 1, 2])
        1.0
    """
    return areas.auroc(scores, target, weight, average=average, versus="one")


BOTH = frozenset({"positives", "negatives"})

auroc = RankingMetric("auroc", areas.auroc, BOTH, auroc_of)
auroc_ovo = RankingMetric("auroc_ovo", _auroc_in_pairs, BOTH, partial(auroc_of, versus="one"))
average_precision = RankingMetric(
    "average_precision", areas.average_precision, frozenset({"positives"}), average_precision_of
)

for _ranking in (auroc, auroc_ovo, average_precision):
    registry.add_ranking(_ranking.name, _ranking)


def get_measure(measure: str | Metric | RankingMetric | Formula) -> Metric | RankingMetric:
    """Get a metric of decisions or a measure of scores by its name.

    Args:
        measure: What ``get_metric`` takes, and also ``"auroc"``, ``"auroc_ovo"``, ``"average_precision"`` or a
            RankingMetric.

    Returns:
        The Metric or RankingMetric; ``is_ranking`` tells which.

    Raises:
        InvalidValueError: There is nothing of that name, or the parameters are out of range.
        InvalidTypeError: ``measure`` is something else, or a parameter is missing.

    Example:
        >>> get_measure("auroc").is_ranking, get_measure("f1").is_ranking
        (True, False)
    """
    if isinstance(measure, RankingMetric):
        return measure
    return get_ranking(measure) or get_metric(measure)


def get_ranking(measure: object) -> RankingMetric | None:
    """Return the measure of scores of that name, or the measure itself; None for anything else."""
    if isinstance(measure, RankingMetric):
        return measure
    ranking: RankingMetric | None = registry.find_ranking(measure.strip()) if isinstance(measure, str) else None
    return ranking
