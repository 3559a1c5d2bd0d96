"""GroupGap, the largest difference of a metric between two groups; and where a metric is 0/0."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce
from itertools import product

from metricfit.core.arrays import Array, exact, namespace
from metricfit.core.counts import Counts
from metricfit.core.numerics import maximum, minimum, value_of, where
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric import Metric
from metricfit.metrics.parsing import in_brackets

#: A count that is this share of the others changes a metric where it is defined by no more than rounding.
PROBE, JUMP = 1e-9, 1e-3


def has_samples(metric: Metric, counts: Counts, value: Array) -> Array:
    """Return for each value of a metric whether there were samples to measure it.

    With several classes, a user-defined metric is assumed to need positives unless ``@metric(needs=...)`` says
    otherwise.

    Args:
        metric: The metric.
        counts: The counts ``(..., c)``.
        value: The metric's values: one per class, of one class, or averaged over the classes, ``(...)``.

    Returns:
        Booleans of the shape of ``value``. An average is measured if one of its classes is.

    Example:
        >>> from metricfit import metrics
        >>> counts = Counts(tp=[3, 0], fp=[1, 2], fn=[1, 0], tn=[5, 8])
        >>> has_samples(metrics.recall, counts, metrics.recall(counts))
        array([ True, False])
    """
    present = counts.n > 0
    for needed in metric.needs or ("positives",) * (metric.user_defined and counts.classes > 1):
        present = present & (getattr(counts, needed) > 0)
    if metric.class_index is not None:
        present = present[..., metric.class_index : metric.class_index + 1]
    shapes = (getattr(value_of(part), "shape", ()) for part in (present, value))
    return present if operator.eq(*shapes) else present.any(-1)


def is_measured(metric: Metric, counts: Counts, value: Array) -> Array:
    """Return for each value of a metric whether hard counts measure it: it has its samples, or is not 0/0.

    Without positives a model whose alarms are all wrong has a precision of 0, and a model without alarms has none.

    Args:
        metric: The metric.
        counts: The counts ``(..., c)``.
        value: The metric's values, as in ``has_samples``.

    Returns:
        Booleans of the shape of ``value``.

    Example:
        >>> from metricfit import metrics
        >>> counts = Counts(tp=[0, 0, 0], fp=[2, 0, 0], fn=[0, 0, 3], tn=[5, 7, 4])
        >>> is_measured(metrics.precision, counts, metrics.precision(counts))
        array([ True, False,  True])
    """
    defined = ~is_undefined(metric, counts)
    return has_samples(metric, counts, value) | (defined if defined.shape == value.shape else defined.any(-1))


def is_undefined(metric: Metric, counts: Counts) -> Array:
    """Return where a metric is 0/0: where its value jumps if one of the four counts grows by a trace.

    Without positives and predicted positives F1 is 0/0, and it would be 1 with a trace of a true positive and 0 with
    one of a false positive. This holds for any formula, users' formulas included.

    Args:
        metric: A metric.
        counts: Counts ``(..., c)``; of a metric of the whole confusion matrix, the matrix.

    Returns:
        Booleans of the shape of the metric's value.

    Example:
        >>> from metricfit import metrics
        >>> is_undefined(metrics.f1, Counts(tp=[0, 0], fp=[0, 1], fn=[0, 0], tn=[5, 4]))
        array([ True, False])
    """
    values = [metric(probe) for probe in _probes(counts)]
    low, high = reduce(minimum, values), reduce(maximum, values)
    return high - low > JUMP * (1 + minimum(abs(low), abs(high)))


def _probes(counts: Counts) -> list[Counts]:
    """Return the counts with a trace added to each of the four, or to each corner of a confusion matrix."""
    cells = [exact(cell) for cell in counts.tensors]
    xp = namespace(*cells)
    least = reduce(minimum, [where(cell > 0, cell, math.inf) for cell in cells])
    if len(cells) == 4:
        trace = PROBE * where(least == math.inf, 1.0, least)
        return [
            counts.with_tensors(cell + trace * (k == probed) for k, cell in enumerate(cells)) for probed in range(4)
        ]
    smallest = xp.amin(least, (-2, -1))
    trace = PROBE * where(smallest == math.inf, 1.0, smallest)
    probes = [cells[0] + 0.0 for _ in range(4)]
    for probe, (row, column) in zip(probes, product((0, -1), (0, -1)), strict=True):
        probe[..., row, column] += trace
    return [counts.with_tensors([probe]) for probe in probes]


#: More names than this are taken for one entry per row, and a message shows no more of them.
SHOWN_GROUPS = 20


class GroupGap(Metric):
    r"""The largest difference of a metric between two groups, :math:`\max_g M_g - \min_g M_g`. Lower is better.

    ``metrics.recall.gap(groups)`` makes one. It is called on counts with an axis of groups before the class axis,
    ``(..., groups, c)``, and gives one value per class, ``(..., c)``. Groups in which the metric is 0/0, such as recall
    without positives, are left out; with fewer than two groups left, the value is 0.

    Args:
        metric: The metric that is compared between groups.
        groups: The number of groups, or their names in the order of the group numbers.

    Raises:
        InvalidTypeError: ``metric`` is a gap already or has costs in columns, or ``groups`` is neither a number nor a
            list of names.
        InvalidValueError: There are fewer than two groups, or two of the same name.

    Example:
        >>> from metricfit import metrics
        >>> gap = GroupGap(metrics.recall, 2)
        >>> gap, gap.minimize, gap.bounds
        (recall.gap(2), True, (0.0, 1.0))
    """

    def __init__(self, metric: Metric, groups: int | Sequence[object]) -> None:
        if isinstance(metric, GroupGap):
            raise InvalidTypeError(f"{metric.name} is a difference between groups already")
        if metric.columns:
            raise InvalidTypeError(f"{metric.name} has a cost for each row, and a gap is between counts of groups")
        low, high = metric.bounds
        super().__init__(
            metric.base_name,
            metric.formula,
            parameters=metric.parameters,
            minimize=True,
            bounds=(0.0, math.inf if math.isinf(high - low) else high - low),
            needs=metric.needs,
            whole_matrix=metric.whole_matrix,
            user_defined=metric.user_defined,
            class_index=metric.class_index,
        )
        self.metric, self.class_name = metric, metric.class_name
        self.needs_matrix = metric.needs_matrix
        self.group_names = _check_names(metric, groups)
        self.groups = len(self.group_names) if self.group_names is not None else _check_number(metric, groups)
        self.__doc__ = f"Largest difference between groups of {metric.name}: {metric.summary}"

    @property
    def name(self) -> str:
        """The name that ``get_metric`` takes."""
        groups = self.groups if self.group_names is None else list(self.group_names)
        return f"{in_brackets(self.metric.name)}.gap({groups!r})"

    @property
    def _remedy(self) -> str:
        return (
            f"a gap needs the counts of each group, Counts.hard(logits, target, group=group, groups={self.groups}); "
            "for labels Counts.from_labels of each group, stacked"
        )

    def _measure(self, counts: Counts) -> Array:
        if not isinstance(counts, Counts):
            raise InvalidTypeError(f"{self.name} is called on Counts, got {type(counts).__name__}; {self._remedy}")
        self._check_counts(counts)
        return self.difference(self.metric(counts), counts)

    def difference(self, value: Array, counts: Counts) -> Array:
        """Return the largest difference of values of the groups.

        Args:
            value: The metric's values, ``(..., groups, c)``, or ``(..., groups)`` after an average over the classes.
            counts: The counts that they were computed from.

        Returns:
            The differences, without the axis of groups.
        """
        self._check_counts(counts)
        present, axis = self._is_defined(value, counts)
        xp = namespace(value)
        largest = xp.amax(where(present, value, -math.inf), axis)
        smallest = xp.amin(where(present, value, math.inf), axis)
        return where(present.sum(axis) > 1, largest - smallest, 0.0)

    def has_two_groups(self, value: Array, counts: Counts) -> Array:
        """Return whether the metric is defined, and not 0/0, in at least two groups.

        Args:
            value: As in ``difference``.
            counts: As in ``difference``.

        Returns:
            Booleans, without the axis of groups.
        """
        present, axis = self._is_defined(value, counts)
        return present.sum(axis) > 1

    def _is_defined(self, value: Array, counts: Counts) -> tuple[Array, int]:
        """Return in which groups the metric is not 0/0, and the axis of the groups; an average if one class is not."""
        defined = ~is_undefined(self.metric, counts)
        return (
            defined if defined.shape == value.shape else defined.any(-1)
        ), -2 if value.ndim == counts.tp.ndim else -1

    def _check_counts(self, counts: Counts) -> None:
        if isinstance(counts, Counts) and (counts.tp.ndim < 2 or counts.tp.shape[-2] != self.groups):
            raise InvalidValueError(
                f"{self.name} needs counts of shape (..., {self.groups}, c), one row per group; got "
                f"{tuple(counts.tp.shape)}. Pass the group number of each row as group= where a function has it; "
                f"otherwise {self._remedy}"
            )

    def __getitem__(self, index: int | str) -> Metric:
        return GroupGap(self.metric[index], self._groups)

    @property
    def _groups(self) -> int | list[object]:
        return self.groups if self.group_names is None else list(self.group_names)

    def __reduce__(self) -> tuple[object, ...]:
        return operator.methodcaller("gap", self._groups), (self.metric,)


def _check_number(metric: Metric, groups: object) -> int:
    if isinstance(groups, bool) or not isinstance(groups, int):
        raise InvalidTypeError(
            f"{metric.name}.gap takes the number of groups or a list of their names, got {quote(groups)}; pass the "
            "group of each row as group= or groups= where the metric is measured"
        )
    if groups < 2:
        raise InvalidValueError(f"{metric.name}.gap needs at least two groups, got {groups}")
    return groups


def _check_names(metric: Metric, groups: object) -> tuple[object, ...] | None:
    """Return the names of the groups, or None if their number was passed."""
    if not isinstance(groups, (list, tuple)):
        return None
    for name in groups:
        if isinstance(name, bool) or not isinstance(name, (str, int)):
            raise InvalidTypeError(f"the names of groups are texts or integers, got {quote(name)}")
    if len(set(groups)) < max(2, len(groups)):
        what = f"{len(groups)} entries" if len(groups) > SHOWN_GROUPS else quote(groups)
        raise InvalidValueError(
            f"{metric.name}.gap needs the names of at least two groups, each once, got {what}; pass the group of each "
            "row as group= or groups= where the metric is measured"
        )
    return tuple(groups)
