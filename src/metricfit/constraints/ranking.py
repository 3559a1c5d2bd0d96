"""RankingConstraint: every positive above every negative by a margin, with a multiplier for every sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.constraints.constraint import Constraint
from metricfit.constraints.terms import equality_term
from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge, settle_task
from metricfit.core.distributed import gather_over_ranks
from metricfit.core.kernels.pairs import violations
from metricfit.core.numerics import has_storage, ratio
from metricfit.core.tasks import canonical, check_task
from metricfit.core.types import Task
from metricfit.core.validation import is_false, looks_at_values
from metricfit.errors import InvalidStateError, InvalidTypeError, InvalidValueError, quote

PER = ("positive", "negative", "pair")


class RankingConstraint(Constraint):
    r"""Few negatives above the lowest positives: low false positive rate at high true positive rate.

    For every positive j, on logits, :math:`q_j = \sum_k \max(0, \delta - (f_j - f_k))` over the batch's negatives, and

    .. math:: \frac{\mu}{2 N_+ N_-} \sum_j q_j^2 + \frac{1}{N_+ N_-} \sum_j \lambda_j q_j,
        \qquad \lambda_j \leftarrow \lambda_j + \mu q_j

    (Sangalli et al. 2021, Eq. 7, 8 and Algorithm 1, to the letter). Squaring the sum of one positive's violations
    makes the lowest positives weigh most. ``per="negative"`` squares the sum of one negative's instead; ``per="pair"``
    squares each pair's and keeps no multipliers. All pairs are summed by sorting: O(n log n) time, O(n) memory.

    Args:
        margin: how far a positive should be above a negative, the paper's delta.
        per: "positive", "negative" or "pair".
        size: how many samples the training set has; the multipliers are numbered by the ``index`` of forward.
        normalize: take q_j as a mean over the negatives, and the mean over the positives, so that mu means the same at
            every batch size. Eq. 8 itself grows with the batch.
        classes: for multiclass and multilabel logits the critical classes, each against the rest; a multiclass
            score is the log-odds of the class.
        task: "binary", "multiclass" or "multilabel", where the shapes do not tell.
        ignore_index: samples with this target count for nothing.
        sync: in a distributed run, rank the samples of all ranks.

    Pixels are samples: ``size`` is then images times pixels, and an index of one number an image stands for all of the
    image's pixels in a row. In eval mode the index may be left out, and with it the multipliers' part. Without
    positives, or without negatives, there are no pairs and the value is 0.

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

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        penalty: Tensor,
        *,
        index: Tensor | None = None,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Eq. 8 without its objective; summed over the critical classes."""
        score, positive, negative = self._sides(logits, target, weight)
        at = self._index(index, len(logits), score)
        if self.over_ranks:
            score, positive, negative = (gather_over_ranks(given, -1) for given in (score, positive, negative))
            at = None if at is None else gather_over_ranks(at)
        mu = penalty.to(score.dtype)
        pairs = positive.sum(-1) * negative.sum(-1)
        if self.per == "pair":
            squares = (positive * violations(score, negative, self.margin, 2)).sum(-1)
            return ratio(mu / 2 * squares, pairs).sum()
        mine, others = (positive, negative) if self.per == "positive" else (negative, positive)
        violation = violations(score, others, self.margin, 1, self.per)
        if self.normalize:
            violation = ratio(violation, others.sum(-1, keepdim=True))
            pairs = mine.sum(-1)
        # Divided by the number of pairs before they are multiplied: the squares of large sums leave little room.
        terms = ratio(mine, pairs.unsqueeze(-1)) * equality_term(violation, self._multipliers(at, score), mu)
        if self.learns and at is not None:
            self._remember(at, (mine > 0) * violation.detach())
        return terms.sum()

    def update(self, penalty: Tensor) -> None:
        """lambda_j += mu q_j for the samples seen since the last update."""
        if self.multiplier is not None and self.pending is not None:
            self.multiplier.add_(penalty.to(self.multiplier.dtype) * self.pending)
            self.pending.zero_()

    def reset(self) -> None:
        """Multipliers back to 0."""
        if self.multiplier is not None and self.pending is not None:
            self.multiplier.zero_()
            self.pending.zero_()

    def _sides(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, and how much each sample counts as a positive and as a negative: ``(c, n)`` of c critical classes."""
        task = settle_task(
            logits, target, self.task, ignore_index=self.ignore_index, validate=self.validate, judge=self._judge
        )
        batch = canonical(
            logits, target, task=task, weight=weight, ignore_index=self.ignore_index, validate=self.validate
        )
        score, share = (
            _columns(batch, self.classes) if isinstance(batch, Columns) else _against_rest(batch, self.classes)
        )
        if batch.weight is None:
            return score, share, 1 - share
        # One weight per sample, or one for each of a sample's columns.
        w = batch.weight.reshape(batch.logits.shape[-2] if isinstance(batch, Columns) else 1, share.shape[-1])
        w = w if len(w) == 1 else _picked(w, self.classes or (0,), 0)
        return score, w * share, w * (1 - share)

    def _index(self, index: Tensor | None, rows: int, score: Tensor) -> Tensor | None:
        """The samples' numbers, ``(n,)``; None where there are no multipliers to number."""
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
                f"index needs one integer a sample, {samples}, or one a row, {rows}; got {index.dtype} "
                f"{tuple(index.shape)}"
            )
        at = index.reshape(-1).long()
        if at.numel() != samples:
            each = samples // rows
            at = (at.unsqueeze(1) * each + torch.arange(each, device=at.device)).reshape(-1)
        if looks_at_values(score, self.validate) and at.numel() and is_false(((at >= 0) & (at < size)).all()):
            raise InvalidValueError(
                f"index must lie in 0..{size - 1}, got {int(at.min())} to {int(at.max())}; is size= the number of "
                "training samples?"
            )
        return at

    def _multipliers(self, at: Tensor | None, score: Tensor) -> Tensor:
        if at is None or self.multiplier is None:
            return torch.zeros_like(score)
        return self.multiplier.reshape(score.shape[0], -1).index_select(-1, at).to(score.dtype)

    def _remember(self, at: Tensor, violation: Tensor) -> None:
        assert self.pending is not None
        if has_storage(self.pending) and not has_storage(violation):
            raise InvalidStateError(
                "RankingConstraint under vmap needs multipliers for each member: stack its buffers, and go through "
                "torch.func.functional_call; train.fit_population does"
            )
        shape = self.pending.shape[:-1]
        self.pending.index_add_(-1, at, violation.to(self.pending.dtype).reshape(*shape, -1))

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        of = "" if self.classes is None else f", classes={list(self.classes)}"
        return f"margin={self.margin:g}, per={quote(self.per)}, size={self.size}, normalize={self.normalize}{of}"


def _columns(batch: Columns, classes: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
    """Logits and target of the critical columns."""
    count = batch.logits.shape[-2]
    if classes is None and count > 1:
        raise InvalidValueError(f"{count} columns of logits: name the critical ones with classes=")
    chosen = _checked(classes or (0,), count)
    return _picked(batch.logits, chosen, -2), _picked(batch.target, chosen, -2)


def _picked(given: Tensor, rows: tuple[int, ...], axis: int) -> Tensor:
    """Some rows; without a list of their numbers, which would be copied to a GPU and waited for."""
    return torch.stack([given.select(axis, one) for one in rows], axis)


def _against_rest(batch: Classes, classes: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
    """The log-odds of each critical class against all others, and whether a sample is of it."""
    axis = batch.layout.class_axis
    logits = batch.logits.movedim(axis, 0).flatten(1)
    count = logits.shape[0]
    if classes is None:
        raise InvalidValueError(
            f"{count} classes: name the critical ones with classes=, each is ranked against the rest"
        )
    scores = [
        logits[one] - torch.cat([logits[:one], logits[one + 1 :]]).logsumexp(0) for one in _checked(classes, count)
    ]
    if batch.target.is_floating_point():
        shares = batch.target.movedim(axis, 0).flatten(1)
        shares = _picked(shares, classes, 0)
    else:
        labels = batch.target.reshape(-1)
        shares = torch.stack([(labels == one).to(logits.dtype) for one in classes])
    return torch.stack(scores), shares


def _checked(classes: tuple[int, ...], count: int) -> tuple[int, ...]:
    for one in classes:
        if not 0 <= one < count:
            raise InvalidValueError(f"classes={classes}: the logits have {count} classes, 0 to {count - 1}")
    return classes
