"""How values of classes and of images become one number, for ``Monitor`` and ``evaluate``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage, ZeroDivision
from metricfit.errors import InvalidValueError
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.class_subset import check_classes
from metricfit.metrics.empty_classes import SKIP, check_zero_division
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.image_average import has_pixels, join_images, mean_of_images, weigh_images
from metricfit.metrics.metric import Metric
from metricfit.metrics.presence import is_undefined


@dataclass(frozen=True)
class Averaging:
    """The average over the classes, and whether it is taken for each image.

    Args:
        average: "macro", "micro" or "weighted".
        classes: The classes of the average; None for all.
        zero_division: What a class counts for where its metric is 0/0; None for the default of the average.
        per_image: Whether the value is the mean of the values of the images.

    Example:
        >>> from metricfit import metrics
        >>> round(Averaging("macro", classes=[1]).value(metrics.f1, Counts([5, 3], [2, 1], [1, 2], [3, 5])), 4)
        0.6667
    """

    average: ScalarAverage = "macro"
    classes: Sequence[int] | None = None
    zero_division: ZeroDivision = None
    per_image: bool = False

    def __post_init__(self) -> None:
        if self.classes is not None and hasattr(self.classes, "tolist"):
            object.__setattr__(self, "classes", self.classes.tolist())

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the average over all classes is set."""
        return self.classes is None and self.zero_division is None and not self.per_image

    @property
    def text(self) -> str:
        """What is set, as a part of a monitor's name."""
        of_classes = "" if self.classes is None else f" of classes {', '.join(map(str, self.classes))}"
        return of_classes + " per image" * self.per_image

    def check(self, metric: Metric) -> None:
        """Refuse settings that do not go with a metric.

        Raises:
            InvalidValueError: They do not.
            InvalidTypeError: The classes are no sequence of numbers.
        """
        check_average(metric, self.average)
        check_classes(metric, self.classes)
        check_zero_division(metric, self.zero_division)
        if self.per_image and isinstance(metric, GroupGap):
            raise InvalidValueError(f"{metric.name} compares groups of rows, not images; leave per_image out")

    def for_metric(self, metric: Metric | None) -> Averaging:
        """Return these settings without ``zero_division`` if the metric has no classes that it could be applied to.

        Args:
            metric: A metric of decisions; None for a ranking.
        """
        if self.zero_division is None or metric is None or isinstance(metric, GroupGap):
            return replace(self, zero_division=None)
        return replace(self, zero_division=None) if metric.whole_matrix and self.zero_division != SKIP else self

    def refuse_for(self, what: str) -> None:
        """Refuse any of the settings for a value that is not a metric of decisions at a fixed threshold.

        Raises:
            InvalidValueError: One is set.
        """
        if self.is_plain:
            return
        settings = {"classes": self.classes, "zero_division": self.zero_division, "per_image": self.per_image or None}
        names = [f"{name}=" for name, value in settings.items() if value is not None]
        raise InvalidValueError(
            f"{' and '.join(names)}: only for metrics of decisions at a fixed threshold, not with {what}; leave it out"
        )

    def values(self, metric: Metric, counts: Counts) -> Tensor:
        """Return the value of counts ``(c,)``, or those of images ``(images, c)``, NaN for images that are left out."""
        return averaged(metric, counts, self.average, self.classes, self.zero_division)

    def value(self, metric: Metric, counts: Counts, shares: Tensor | None = None) -> float:
        """Return the value as one number; ``shares`` is what ``weigh`` returned; None for equal images."""
        values = self.values(metric, counts)
        if not self.per_image:
            return float(values)
        return float(mean_of_images(values, self.weigh(counts, None) if shares is None else shares))

    def is_undefined(self, metric: Metric, counts: Counts) -> bool:
        """Return whether the value of one column, of all its rows together, is 0/0 and no ``zero_division`` is set."""
        one = counts.tp.numel() == 1 and self.zero_division is None and not isinstance(metric, GroupGap)
        return one and bool(is_undefined(metric, counts).all())

    def weigh(self, counts: Counts, weight: Tensor | None) -> Tensor | None:
        """Return how much each image of a batch counts in the mean; None if images are not measured one by one."""
        return weigh_images(has_pixels(counts), weight, counts.tp.dtype) if self.per_image else None

    def join(self, parts: Iterable[Counts]) -> Counts:
        """Return the counts of several batches together: their sum, or one row per image."""
        return join_images(parts) if self.per_image else sum(parts)  # type: ignore[return-value]

    def of_all_pixels(self, counts: Counts) -> Counts:
        """Return the counts of all images together."""
        return counts.with_tensors(tensor.sum(0) for tensor in counts.tensors) if self.per_image else counts
