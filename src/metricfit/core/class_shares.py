"""Detection of targets ``(n, c)`` that look like class shares although they would be read as multilabel.

A target of the logits' shape is multilabel unless ``task="multiclass"`` says that its rows are shares of classes, as
one-hot labels, label smoothing and mixup produce. The shapes do not distinguish the two, but the values nearly always
do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from metricfit.core.arrays import Array, counting_type, exact, is_floating, is_tensor, namespace
from metricfit.core.numerics import constant
from metricfit.core.types import Task
from metricfit.core.validation import looks_at_values
from metricfit.errors import InvalidValueError

#: Rows with exactly one label before a warning: a few rows of a multilabel set have one label each by chance.
FEWEST_ROWS = 8
#: Largest difference of a sum of shares from 1 by rounding, also in float16.
ROUNDING = 2e-3

_judged: ContextVar[bool] = ContextVar("targets_judged", default=False)


class OneHotTargetWarning(UserWarning):
    """Each row of a target that is read as multilabel has exactly one label.

    Example:
        >>> from metricfit import MetricLoss
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     loss = MetricLoss("f1")(torch.zeros(9, 3), torch.eye(3).repeat(3, 1))
        >>> caught[0].category.__name__
        'OneHotTargetWarning'
    """


@contextmanager
def targets_judged() -> Iterator[None]:
    """Skip the inspection of targets inside the block, because the whole set was inspected before."""
    token = _judged.set(True)
    try:
        yield
    finally:
        _judged.reset(token)


class TargetJudge:
    """Inspects the targets of one loss, or of one data set, batch by batch, until it is known how to read them.

    Attributes:
        rows: The number of rows seen.
        fractions: Whether a row had an entry other than 0 and 1.
        settled: Whether the inspection is finished: a row did not sum to 1, or the warning was issued.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.fractions = False
        self.settled = False

    def look(self, target: Array, ignore_index: int | None = None, name: str = "target") -> None:
        """Inspect another part of the targets and judge all parts so far.

        Args:
            target: ``(n, c)``, about to be read as multilabel.
            ignore_index: Rows that contain this label are ignored.
            name: The name of the target in messages.

        Raises:
            InvalidValueError: All rows so far sum to 1, and not all entries are 0 or 1.
        """
        self.observe(target, ignore_index)
        self.conclude(f"{name} {tuple(target.shape)}", stacklevel=6)

    def observe(self, target: Array, ignore_index: int | None = None) -> None:
        """Inspect another part of the targets without judging it. The arguments are the same as in ``look``."""
        if self.settled or 0 in target.shape:
            return
        y = constant(target) if is_floating(target) else exact(target)
        kept = y[:, 0] == y[:, 0] if ignore_index is None else (y != ignore_index).all(1)
        sums = y.sum(1, dtype=counting_type(y))
        sums_to_1 = (abs(sums - 1) <= ROUNDING) | ~kept
        has_fractions = ((y != 0) & (y != 1)).any(1) & kept
        try:
            rows, all_sum_to_1, fractions = (
                namespace(y).stack([kept.sum(), sums_to_1.all(), has_fractions.any()]).tolist()
            )
        except RuntimeError:  # vmap hides the values
            return
        self.rows += rows
        self.fractions |= bool(fractions)
        self.settled = not all_sum_to_1

    def add_other_ranks(self, device: Any) -> None:
        """Add the results of the other processes of a distributed run; all of them must call this."""
        import torch

        from metricfit.core.distributed import sum_over_ranks

        facts = torch.tensor([self.rows, int(self.fractions), int(self.settled)], device=device)
        rows, fractions, settled = sum_over_ranks(facts).tolist()
        self.rows, self.fractions, self.settled = rows, fractions > 0, settled > 0

    def conclude(self, name: str, stacklevel: int = 2) -> None:
        """Judge the rows that were inspected.

        Args:
            name: The name of the target in messages.
            stacklevel: The frame that a warning is reported for, as in ``warnings.warn``.

        Raises:
            InvalidValueError: All rows sum to 1, and not all entries are 0 or 1.
        """
        if self.settled or not self.rows:
            return
        if self.fractions:
            raise InvalidValueError(
                f"the rows of the {name} sum to 1 and are not all 0 or 1: they can be read as "
                "multiclass with soft targets (class shares that sum to 1) or as multilabel (each class a yes or no); "
                "say which with task='multiclass' or task='multilabel'"
            )
        if self.rows >= FEWEST_ROWS:
            self.settled = True
            warnings.warn(
                f"each row of the {name} has exactly one label, and it is read as multilabel: "
                "each class a yes or no. If the classes exclude each other, say task='multiclass', or pass class "
                "numbers (n,), target.argmax(1); if not, task='multilabel' says so and ends this warning",
                OneHotTargetWarning,
                stacklevel=stacklevel,
            )


def settle_task(
    logits: Array,
    target: Array,
    task: Task | None,
    *,
    ignore_index: int | None = None,
    validate: bool | None = None,
    judge: TargetJudge,
) -> Task | None:
    """Return the user's task, or "multilabel" if the values of the target were inspected and leave no doubt.

    This is for callers that count the same batch several times; ``core.tasks.canonical`` does it for one count.

    Args:
        logits: The outputs of the model.
        target: The labels.
        task: The user's task; targets are inspected only if it is None.
        ignore_index: Rows that contain this label are ignored.
        validate: Whether to inspect values; by default in eager mode on the CPU.
        judge: The judge of a loss, which remembers earlier batches.

    Returns:
        The task, or None if it is still open.

    Raises:
        InvalidValueError: The target can be read in two ways.
    """
    if task is not None or not _is_table(logits, target) or not inspects_targets(logits, validate):
        return task
    judge.look(target, ignore_index)
    return "multilabel"


def inspects_targets(logits: Array, validate: bool | None) -> bool:
    """Return whether the values of targets are inspected at this point of the program.

    Args:
        logits: The outputs of the model, for their device.
        validate: Whether to inspect values; by default in eager mode on the CPU.
    """
    return looks_at_values(logits, validate) and not _judged.get()


def _is_table(logits: Array, target: Array) -> bool:
    """Return whether target and logits are ``(n, c)`` with several classes."""
    if not (is_tensor(logits) and is_tensor(target)):
        return False
    return logits.ndim == 2 and logits.shape[1] > 1 and logits.shape == target.shape
