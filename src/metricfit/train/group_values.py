"""The groups of rows that ``evaluate`` gets, and the rows of each group in their final shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge
from metricfit.core.group_labels import GroupLabels, number_groups
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical
from metricfit.core.types import Task
from metricfit.errors import InvalidValueError
from metricfit.metrics.group_gap import GroupGap
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.samples import Source


class EvaluatedRows(NamedTuple):
    """The logits, labels and weights of all rows, and how to read them."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    ignore_index: int | None
    task: Task | None

    def settle(self, rows: Tensor | None = None, groups: GroupLabels | None = None) -> Columns | Classes:
        """Return all rows, or some of them, in their final shape, with their groups if these are given."""
        parts = (self.logits, self.target, self.weight)
        logits, target, weight = (None if part is None else part if rows is None else part[rows] for part in parts)
        assert logits is not None
        assert target is not None
        return canonical(
            logits,
            target,
            CountSettings(
                task=self.task,
                ignore_index=self.ignore_index,
                groups=None if groups is None else len(groups.names),
                validate=True,
            ),
            weight=weight,
            group=None if groups is None else groups.numbers,
            judge=TargetJudge(),
        )

    def settle_groups(self, groups: GroupLabels, samples: Columns | Classes) -> Iterator[tuple[Any, Columns | Classes]]:
        """Yield the label and the rows of each group that has rows, read as all rows together were."""
        columns: Task = "binary" if samples.logits.shape[-2] == 1 else "multilabel"
        same_task = self._replace(task="multiclass" if isinstance(samples, Classes) else columns)
        for number, name in enumerate(groups.names):
            rows = groups.numbers == number
            if bool(rows.any()):
                yield name, same_task.settle(rows)


def read_groups(
    labels: Any, loaded: Tensor | None, source: Source, rows: int, gaps: Sequence[GroupGap]
) -> GroupLabels | None:
    """Number the groups of rows, in the order of the names of a gap if there are any.

    Args:
        labels: One label per row, or None.
        loaded: The group numbers of the batches of a DataLoader or a Dataset, or None.
        source: The data.
        rows: The number of rows.
        gaps: The gaps that will be measured.

    Returns:
        The group number of each row, and the labels of the groups; None if there are no groups.

    Raises:
        ValueError: The labels do not go with the rows or with the gaps.
    """
    if labels is not None and isinstance(source, FromLoader):
        raise InvalidValueError(
            "groups are for (X, y) and a Dataset; let the DataLoader return dictionaries with 'group'"
        )
    labels = loaded if labels is None else labels
    if labels is None:
        if gaps:
            raise InvalidValueError(f"{gaps[0].name} needs groups: pass groups=, one label per row")
        return None
    found = number_groups(labels, rows, "groups")
    for gap in gaps:
        known = tuple(range(gap.groups)) if gap.group_names is None else gap.group_names
        if set(found.names) <= set(known):  # in the order of the gap; a group may have no rows here
            found = number_groups(labels, rows, "groups", known)
        elif gap.group_names is not None or len(found.names) != gap.groups:
            raise InvalidValueError(f"{gap.name} is between {gap.groups} groups, but groups has {list(found.names)}")
    return found
