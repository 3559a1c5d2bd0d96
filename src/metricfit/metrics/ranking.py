"""Measures of how well scores rank positives above negatives, as objects beside the metrics of decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from metricfit.metrics import curves, registry
from metricfit.metrics.metric import Bounds, Formula, Metric, get_metric
from metricfit.metrics.metric_parameters import first_paragraph
from metricfit.metrics.sweep import Array


class RankingMetric:
    """A measure of scores, such as ``metrics.auroc``. It needs no threshold and makes no decisions.

    It has the attributes of a Metric that make sense for it: ``name``, ``minimize``, ``bounds``, ``needs`` and
    ``summary``. Because it is not a formula over counts, it cannot be a MetricLoss or a requirement.

    Args:
        name: The name.
        function: Computes the value from scores, labels and weights.
        needs: Which of "positives" and "negatives" must be present.

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
        self, name: str, function: Callable[[Array, Array, Array | None], float], needs: frozenset[str]
    ) -> None:
        self.name = name
        self.needs = needs
        self._function = function
        self.__doc__ = function.__doc__

    @property
    def summary(self) -> str:
        """The definition in words: the first paragraph of the documentation."""
        return first_paragraph(self.__doc__)

    def measure(self, scores: Array, target: Array, weight: Array | None = None) -> float:
        """Compute the value.

        Args:
            scores: One score per sample, logits or probabilities: ``(n,)`` or ``(n, 1)``.
            target: One label per sample, 0 or 1.
            weight: One weight per sample, at least 0; by default all are 1.

        Returns:
            The value.

        Raises:
            ValueError: The arrays differ in length, hold NaN, or lack a class that the measure needs.
        """
        return self._function(scores, target, weight)

    __call__ = measure

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return registry.find_ranking, (self.name,)


auroc = RankingMetric("auroc", curves.auroc, frozenset({"positives", "negatives"}))
average_precision = RankingMetric("average_precision", curves.average_precision, frozenset({"positives"}))

for _ranking in (auroc, average_precision):
    registry.add_ranking(_ranking.name, _ranking)


def get_measure(measure: str | Metric | RankingMetric | Formula) -> Metric | RankingMetric:
    """Get a metric of decisions or a measure of scores by its name.

    Args:
        measure: What ``get_metric`` takes, and also ``"auroc"``, ``"average_precision"`` or a RankingMetric.

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
