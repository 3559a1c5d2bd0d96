"""RankingConstraint: every positive should be above every negative by a margin, with one multiplier per sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.constraints.constraint import Constraint, Rows, equality_term
from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge
from metricfit.core.distributed import gather_over_ranks
from metricfit.core.kernels.pairs import violations
from metricfit.core.numerics import ratio
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical, check_task
from metricfit.core.tensor_numerics import has_storage
from metricfit.core.types import Task
from metricfit.core.validation import is_false, looks_at_values
from metricfit.errors import InvalidStateError, InvalidTypeError, InvalidValueError, quote

PER = ("positive", "negative", "pair")


class RankingConstraint(Constraint):
    r"""Few negatives above the lowest positives, that is, a low false positive rate at a high true positive rate.

    For every positive j, on logits, :math:`q_j = \sum_k \max(0, \delta - (f_j - f_k))` over the negatives of the
    batch, and

    .. math:: \frac{\mu}{2 N_+ N_-} \sum_j q_j^2 + \frac{1}{N_+ N_-} \sum_j \lambda_j q_j,
        \qquad \lambda_j \leftarrow \lambda_j + \mu q_j

    (Sangalli et al. 2021, Eq. 7, 8 and Algorithm 1). Squaring the sum of the violations of one positive gives the
    lowest positives the most weight. ``per="negative"`` squares the sum of each negative instead. ``per="pair"``
    squares each pair and has no multipliers. All pairs are summed by sorting: O(n log n) time, O(n) memory.

    Args:
        margin: How far a positive should be above a negative, delta in the paper.
        per: "positive", "negative" or "pair".
        size: Number of samples in the training set; ``index`` of forward gives each sample's multiplier.
        normalize: Take q_j as a mean over the negatives, and the mean over the positives, so that mu means the same at
            every batch size. Eq. 8 itself grows with the batch.
        classes: For multiclass and multilabel logits, the critical classes, each ranked against the rest; the score of
            a class in multiclass is its log-odds.
        task: "binary", "multiclass" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, rank the samples of all ranks.
        validate: Check labels, logits and index for values out of range; by default in eager mode on the CPU.

    Raises:
        ValueError: If an argument is out of range, or ``size`` is missing.

    Note:
        Pixels are samples: ``size`` is then images times pixels, and an index with one number per image stands for all
        pixels of the image in order. In eval mode the index may be omitted; the multipliers then count as 0. Without
        positives, or without negatives, there are no pairs and the value is 0.

    Example:
        >>> low_fpr = RankingConstraint(margin=1.0, size=3)
        >>> low_fpr(torch.tensor([0.0, 2.0, 1.0]), torch.tensor([1, 1, 0]), torch.tensor(0.2))
        tensor(0.2000)
    """

    late: ClassVar[tuple[str, ...]] = ()
    pending: Tensor | None

    def __init__(
        self,
        margin: float = 1.0,
        per: str = "positive",
        size: int | None = None,
        normalize: bool = False,
        *,
        classes: int | Sequence[int] | None = None,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
        validate: bool | None = None,
    ) -> None:
        super().__init__(sync=sync)
        if not 0.0 <= margin < math.inf:
            raise InvalidValueError(f"RankingConstraint needs a finite margin of at least 0, got {margin}")
        if per not in PER:
            raise InvalidValueError(f"per must be one of {', '.join(map(repr, PER))}, got {quote(per)}")
        if per != "pair" and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InvalidValueError(
                f"per={quote(per)} keeps a multiplier for every training sample: give size=, their number; got "
                f"{quote(size)}"
            )
        check_task(task)
        self.margin, self.per, self.size, self.normalize = float(margin), per, size, normalize
        if isinstance(classes, int):
            classes = [classes]
        self.classes = None if classes is None else tuple(classes)
        self.task, self.ignore_index, self.validate = task, ignore_index, validate
        self._judge = TargetJudge()
        if classes is not None and (not self.classes or len(set(self.classes)) < len(self.classes)):
            raise InvalidValueError(f"classes must be different class numbers, at least one; got {quote(classes)}")
        shape = () if self.classes is None else (len(self.classes),)
        for name in ("multiplier", "pending"):
            self.register_buffer(name, None if per == "pair" else torch.zeros(*shape, size or 0))

    def term(self, rows: Rows, penalty: Tensor) -> Tensor:
        """Compute Eq. 8 without its objective, summed over the critical classes.

        Args:
            rows: The rows, which have no groups here.
            penalty: The penalty factor mu.

        Returns:
            What the constraint adds to the objective, a scalar.
        """
        score, positive, negative = self._sides(rows.logits, rows.target, rows.weight)
        positions = self._positions(rows.index, len(rows.logits), score)
        if self.over_ranks:
            score, positive, negative = (gather_over_ranks(part, -1) for part in (score, positive, negative))
            positions = None if positions is None else gather_over_ranks(positions)
        mu = penalty.to(score.dtype)
        pairs = positive.sum(-1) * negative.sum(-1)
        if self.per == "pair":
            squares = (positive * violations(score, negative, self.margin, 2)).sum(-1)
            return ratio(mu / 2 * squares, pairs).sum()
        counted, others = (positive, negative) if self.per == "positive" else (negative, positive)
        violation = violations(score, others, self.margin, 1, self.per)
        if self.normalize:
            violation = ratio(violation, others.sum(-1, keepdim=True))
            pairs = counted.sum(-1)
        # Divide by the number of pairs first, because the squares of large sums could overflow.
        terms = ratio(counted, pairs.unsqueeze(-1)) * equality_term(violation, self._multipliers(positions, score), mu)
        if self.learns and positions is not None:
            self._record(positions, (counted > 0) * violation.detach())
        return terms.sum()

    def update(self, penalty: Tensor) -> None:
        """Add mu q_j to the multipliers of the samples since the last update.

        Args:
            penalty: The penalty factor mu.
        """
        if self.multiplier is not None and self.pending is not None:
            self.multiplier.add_(penalty.to(self.multiplier.dtype) * self.pending)
            self.pending.zero_()

    def reset(self) -> None:
        """Set the multipliers to 0."""
        if self.multiplier is not None and self.pending is not None:
            self.multiplier.zero_()
            self.pending.zero_()

    def _sides(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores and the weights of each sample as a positive and as a negative, ``(c, n)`` for c classes."""
        batch = canonical(
            logits,
            target,
            CountSettings(task=self.task, ignore_index=self.ignore_index, validate=self.validate),
            weight=weight,
            judge=self._judge,
        )
        score, share = (
            _columns(batch, self.classes) if isinstance(batch, Columns) else _against_rest(batch, self.classes)
        )
        if batch.weight is None:
            return score, share, 1 - share
        # One weight per sample, or one for each of a sample's columns.
        w = batch.weight.reshape(batch.logits.shape[-2] if isinstance(batch, Columns) else 1, share.shape[-1])
        w = w if len(w) == 1 else _select_rows(w, self.classes or (0,), 0)
        return score, w * share, w * (1 - share)

    def _positions(self, index: Tensor | None, rows: int, score: Tensor) -> Tensor | None:
        """Return the position of each sample's multiplier, ``(n,)``; None if no multipliers are used."""
        if self.per == "pair":
            return None
        samples, size = score.shape[-1], self.size
        assert size is not None
        if index is None:
            if not self.training:
                return None
            if samples != size:
                raise InvalidValueError(
                    f"RankingConstraint keeps a multiplier for each of {size} samples; this batch has {samples}: give "
                    "index=, the samples' positions in the training set"
                )
            return torch.arange(size, device=score.device)
        if not isinstance(index, Tensor):
            raise InvalidTypeError(f"index must be a tensor of sample numbers, got {type(index).__name__}")
        if index.is_floating_point() or index.dtype == torch.bool or index.numel() not in (rows, samples):
            raise InvalidValueError(
                f"index needs one integer per sample ({samples}) or one per row ({rows}); got {index.dtype} "
                f"{tuple(index.shape)}"
            )
        positions = index.reshape(-1).long()
        if positions.numel() != samples:
            per_row = samples // rows
            positions = (positions.unsqueeze(1) * per_row + torch.arange(per_row, device=positions.device)).reshape(-1)
        if (
            looks_at_values(score, self.validate)
            and positions.numel()
            and is_false(((positions >= 0) & (positions < size)).all())
        ):
            raise InvalidValueError(
                f"index must lie in 0..{size - 1}, got {int(positions.min())} to {int(positions.max())}; is size= the "
                "number of training samples?"
            )
        return positions

    def _multipliers(self, positions: Tensor | None, score: Tensor) -> Tensor:
        if positions is None or self.multiplier is None:
            return torch.zeros_like(score)
        return self.multiplier.reshape(score.shape[0], -1).index_select(-1, positions).to(score.dtype)

    def _record(self, positions: Tensor, violation: Tensor) -> None:
        assert self.pending is not None
        if has_storage(self.pending) and not has_storage(violation):
            raise InvalidStateError(
                "RankingConstraint under vmap needs multipliers for each member: stack its buffers, and go through "
                "torch.func.functional_call; metricfit_papers.populations.fit_population does"
            )
        if self.is_new_pass(violation):
            shape = self.pending.shape[:-1]
            self.pending.index_add_(-1, positions, violation.to(self.pending.dtype).reshape(*shape, -1))

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        classes = "" if self.classes is None else f", classes={list(self.classes)}"
        return f"margin={self.margin:g}, per={quote(self.per)}, size={self.size}, normalize={self.normalize}{classes}"


def _columns(batch: Columns, classes: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
    """Return logits and target of the critical columns."""
    count = batch.logits.shape[-2]
    if classes is None and count > 1:
        raise InvalidValueError(f"{count} columns of logits: name the critical ones with classes=")
    chosen = _check_classes(classes or (0,), count)
    return _select_rows(batch.logits, chosen, -2), _select_rows(batch.target, chosen, -2)


def _select_rows(tensor: Tensor, rows: tuple[int, ...], axis: int) -> Tensor:
    """Select rows without an index tensor, whose copy to a GPU would have to be waited for."""
    return torch.stack([tensor.select(axis, row) for row in rows], axis)


def _against_rest(batch: Classes, classes: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
    """Return the log-odds of each critical class against all others, and the share of each sample in the class."""
    axis = batch.layout.class_axis
    logits = batch.logits.movedim(axis, 0).flatten(1)
    count = logits.shape[0]
    if classes is None:
        raise InvalidValueError(
            f"{count} classes: name the critical ones with classes=, each is ranked against the rest"
        )
    scores = [logits[k] - torch.cat([logits[:k], logits[k + 1 :]]).logsumexp(0) for k in _check_classes(classes, count)]
    if batch.target.is_floating_point():
        shares = batch.target.movedim(axis, 0).flatten(1)
        shares = _select_rows(shares, classes, 0)
    else:
        labels = batch.target.reshape(-1)
        shares = torch.stack([(labels == k).to(logits.dtype) for k in classes])
    return torch.stack(scores), shares


def _check_classes(classes: tuple[int, ...], count: int) -> tuple[int, ...]:
    for k in classes:
        if not 0 <= k < count:
            raise InvalidValueError(f"classes={classes}: the logits have {count} classes, 0 to {count - 1}")
    return classes
