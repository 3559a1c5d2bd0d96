"""AdversarialLoss: training against an adversary that chooses the labels of the batch."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.distributed import gather_over_ranks
from metricfit.core.tensor_numerics import leading
from metricfit.core.validation import check_finite
from metricfit.errors import InvalidValueError, quote
from metricfit.losses.base import ColumnLoss
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.requirements import Requirement
from metricfit_papers.baselines.adversarial_game import Game, solve

#: The constructor tries the metric on this many samples, so that unsuitable metrics are refused there.
TRIAL = 12
#: Maximum number of values of tp that are tried at each pair of margins.
TRIED = 9
#: Maximum distance of a value from the straight line, as a share of the largest value.
STRAIGHT = 1e-9


class AdversarialLoss(ColumnLoss):
    r"""Adversarial prediction for a metric of counts. Fathony and Kolter 2020, AP-Perf.

    .. math:: L(x) = \max_Q \min_P \; E_{\hat y \sim P,\; \check y \sim Q}\big[\ell(\hat y, \check y)
        + x^\top (\check y - y)\big]

    A predictor P and an adversary Q choose random label vectors of the whole batch. :math:`\ell` is one minus the
    metric of the predicted labels against the adversary's labels (the metric itself if lower is better), and the
    adversary gains the logits of the labels it changes. L is convex in the logits and at least the loss of the best
    prediction. Its gradient is :math:`q - y`, the marginal probabilities of the adversary minus the labels.

    The metric must be affine in tp and tn at fixed numbers of predicted and of true positives, which is checked by
    evaluating the formula: accuracy, f1, fbeta, precision, recall, fpr, fnr, specificity, npv, balanced_accuracy,
    informedness, markedness, mcc, kappa, fowlkes_mallows, cost, tversky with alpha + beta = 1.
    Others, such as gmean, are refused.

    Args:
        metric: A Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts.
        subject_to: Requirements such as ``"recall >= 0.9"``, on metrics of the same kind. As in the paper they apply to
            the predictor: its expected value of the metric against the true labels must reach the bound. A requirement
            whose metric needs positives (or negatives) is ignored in batches without them.
        one_class: The value of a batch whose labels are all of one class and are all predicted correctly. None uses the
            formula, which for f1 without positives is 0/0, that is 0. The package ap-perf uses 1.0 for such batches
            (``special_case_positive`` and ``special_case_negative``); with small batches of rare positives this gives
            more useful gradients.
        tol: Maximum error of the value of the game. It is checked, and a RuntimeWarning reports if it was not reached.
            (100 steps of ADMM in the package ap-perf left 0.004 to 0.04 on batches of 6 to 20.)
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, gather the logits and labels of all ranks, in training mode with gradients enabled,
            and solve the game of the whole batch on every rank, which gives the gradient of the whole batch. If
            False, every rank solves the game of its samples, and DistributedDataParallel averages the gradients.

    Raises:
        ValueError: If the metric is not affine in this sense, or ``one_class`` or ``tol`` is out of range.

    Note:
        The loss is for binary logits and labels 0 or 1, and it does not accept ``weight``. It is not a mean: it is the
        value of one game per batch plus a sum over samples, so learning rates depend on the batch size. The game is
        always solved on the CPU in float64. vmap solves the games of the members one by one, and
        torch.compile breaks its graph there. Without samples the loss is 0.

    Example:
        >>> loss = AdversarialLoss("f1")
        >>> logits = torch.tensor([0.6, 0.5, -0.9], requires_grad=True)
        >>> value = loss(logits, torch.tensor([1, 0, 0]))
        >>> value.backward()
        >>> print(f"{value.item():.2f}", (logits.grad + 0.0).numpy().round(2) + 0.0)
        0.50 [0. 1. 0.]
    """

    def __init__(
        self,
        metric: str | Metric | Formula,
        *,
        subject_to: Requirements | None = None,
        one_class: float | None = None,
        tol: float = 1e-3,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(ignore_index=ignore_index, sync=sync)
        if isinstance(tol, bool) or not isinstance(tol, Real) or not 0 < tol < 1:
            raise InvalidValueError(f"tol is how far the value may be off, a number between 0 and 1, got {quote(tol)}")
        if one_class is not None and (not isinstance(one_class, Real) or not math.isfinite(one_class)):
            raise InvalidValueError(
                f"one_class is the value of a batch of one class, a finite number or None, got {quote(one_class)}"
            )
        self.metric: Metric = get_metric(metric)
        self.subject_to: tuple[Requirement, ...] = tuple(as_requirements(subject_to, gaps=True))
        for rule in self.subject_to:
            if rule.is_equality or isinstance(rule.metric, GroupGap):
                raise InvalidValueError(
                    f"the adversarial game takes bounds with >= and <= on one group, not {rule}; AugmentedLagrangian "
                    "takes equalities and gaps between groups"
                )
        self.one_class: float | None = None if one_class is None else float(one_class)
        self.tol: float = float(tol)
        self._tables: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._make_tables(TRIAL)

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the value of the game of the batch.

        Args:
            logits: Binary logits ``(n,)`` or ``(n, 1)``.
            target: Labels 0 and 1.
            weight: Must be None.

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: If a weight is passed, the logits are not binary, or the requirements cannot be met.
        """
        if weight is not None:
            raise InvalidValueError(
                "AdversarialLoss takes no weights: it counts label vectors of the whole batch, in which a sample is "
                "there or not. Leave weight out; to weigh a class take fbeta or cost as the metric"
            )
        batch = self.columns(logits, target, None)
        if batch.logits.shape[-2] != 1:
            raise InvalidValueError(f"AdversarialLoss is for binary logits, (n,) or (n, 1), got {tuple(logits.shape)}")
        x, y = batch.logits.squeeze(-2), batch.target.squeeze(-2)
        if batch.weight is not None:  # 0 for ignored samples
            kept = batch.weight.squeeze(-2) > 0
            x, y = x[kept], y[kept]
        if self.spans_ranks:
            x, y = gather_over_ranks(x), gather_over_ranks(y)
        answer = _Adversary.apply
        if torch.compiler.is_compiling():  # not as a decorator, which would import the compiler with this package
            answer = torch.compiler.disable(answer)  # type: ignore[no-untyped-call]
        q, worst = answer(x, y, self)  # type: ignore[no-untyped-call]
        # By the envelope theorem the adversary can be held fixed: x (q - y) has the gradient of the loss.
        loss: Tensor = worst + (x * (q - y)).sum()
        return loss

    def adversary(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the optimal strategy of the adversary, without a gradient.

        Args:
            logits: Binary logits ``(n,)``.
            target: Labels 0 and 1.

        Returns:
            The marginal probability of a positive label for each sample, and the expected loss.

        Raises:
            ValueError: If a label is neither 0 nor 1.
        """
        if not len(logits):
            return torch.zeros_like(logits), logits.new_zeros(())
        x, y = (values.detach().to("cpu", torch.float64) for values in (logits, target))
        check_finite(x.sum(), x)
        if not bool(((y == 0) | (y == 1)).all()):
            raise InvalidValueError(
                "AdversarialLoss needs labels 0 or 1, got fractions; for soft labels take MetricLoss"
            )
        (slope, offset), *rules = self._make_tables(len(x))
        binding = [
            (side * rule_slope[:, int(y.sum())], side * (rule_offset[:, int(y.sum())] - rule.bound))
            for rule, (rule_slope, rule_offset) in zip(self.subject_to, rules, strict=True)
            if _applies(rule, y)
            for side in (1.0 if rule.sense == ">=" else -1.0,)
        ]
        self._check_reachable(binding, y)
        empty = (x.new_zeros(0, len(x) + 1),) * 2
        rule_slope, rule_offset = (torch.stack(tables) for tables in zip(*binding, strict=True)) if binding else empty
        answer = solve(Game(x, y, slope, offset, rule_slope, rule_offset), self.tol)
        return answer.marginal.to(logits), answer.loss.to(logits)

    def _make_tables(self, n: int) -> list[tuple[Tensor, Tensor]]:
        """Return slope and offset of the loss, then of the metric of each requirement, for batches of n samples."""
        if n not in self._tables:
            slope, offset = affine_in_tp(self.metric, n)
            if self.one_class is not None:
                offset[0, 0] = offset[n, n] = self.one_class
            loss = (slope, offset) if self.metric.minimize else (-slope, 1.0 - offset)
            self._tables[n] = [loss, *(affine_in_tp(rule.metric, n) for rule in self.subject_to)]
        return self._tables[n]

    def _check_reachable(self, binding: list[tuple[Tensor, Tensor]], y: Tensor) -> None:
        positives = int(y.sum())
        for slope, offset in binding:
            if float(slope[positives] * positives + offset[positives]) < -1e-9:
                raise InvalidValueError(
                    f"even the true labels of this batch, {positives} positives of {len(y)}, do not meet "
                    f"{' and '.join(map(str, self.subject_to))}; loosen the bound, or use larger or stratified batches"
                )

    def extra_repr(self) -> str:
        """Return the settings that differ from the defaults."""
        rules = [f"subject_to={[str(rule) for rule in self.subject_to]}"] if self.subject_to else []
        one_class = [] if self.one_class is None else [f"one_class={self.one_class:g}"]
        return ", ".join([repr(self.metric.name), *rules, *one_class])


def _applies(rule: Requirement, y: Tensor) -> bool:
    """Whether a batch has the positives or negatives that the metric of a requirement needs."""
    present = {"positives": bool((y == 1).any()), "negatives": bool((y == 0).any())}
    return all(present[needed] for needed in rule.metric.needs)


class _Adversary(torch.autograd.Function):
    """The adversary's strategy, without a gradient; a Function, so that vmap can pass the scores of each member."""

    @staticmethod
    def forward(logits: Tensor, target: Tensor, loss: AdversarialLoss) -> tuple[Tensor, Tensor]:
        answer: tuple[Tensor, Tensor] = loss.adversary(logits, target)
        return answer

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """Solve the games of the members one after another."""
        *tensors, loss = inputs
        x, y = (leading(tensor, dim, info.batch_size) for tensor, dim in zip(tensors, in_dims, strict=False))
        assert x is not None
        assert y is not None
        answers = [_Adversary.apply(*member, loss) for member in zip(x, y, strict=True)]  # type: ignore[no-untyped-call]
        q, worst = (torch.stack(parts) for parts in zip(*answers, strict=True))
        return (q, worst), (0, 0)


def affine_in_tp(metric: Metric, n: int) -> tuple[Tensor, Tensor]:
    """Find slope and offset of a metric that is affine in tp: value = slope[k, l] tp + offset[k, l].

    Of n samples, k are predicted to be positive and l are positive. The other counts follow from tp, because
    tn = n - k - l + tp. The formula is evaluated at every pair (k, l) and up to 9 values of tp, which are all of them
    for n < 18. F1, 2 tp / (k + l), is affine, and so are MCC and kappa; the G-mean and the Jaccard index are not.
    If k or l is 0 or n, only one tp is possible and the slope is 0.

    Args:
        metric: The metric.
        n: Number of samples.

    Returns:
        Slope and offset, both ``(n + 1, n + 1)`` in float64.

    Raises:
        ValueError: If the metric is not affine in tp, or not finite.

    Example:
        >>> from metricfit.metrics import f1
        >>> slope, offset = affine_in_tp(f1, 4)
        >>> slope[2, 1], offset[2, 1]
        (tensor(0.6667, dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    sizes = torch.arange(n + 1, dtype=torch.float64)
    predicted, positive = sizes.unsqueeze(1), sizes
    rest = n - predicted - positive
    fewest, most = (-rest).clamp_min(0.0), torch.minimum(predicted, positive)
    fractions = torch.linspace(0.0, 1.0, min(TRIED, n // 2 + 1) if n else 1, dtype=torch.float64)
    tp = (fewest + fractions.reshape(-1, 1, 1) * (most - fewest)).round()
    tables = Counts(*(cell.unsqueeze(-1) for cell in (tp, predicted - tp, positive - tp, rest + tp)))
    value = metric(tables).reshape(tp.shape)
    if not bool(value.isfinite().all()):
        raise InvalidValueError(
            f"{metric.name} is not finite for some tables of {n} samples; see metricfit.metrics.ratio"
        )
    width = most - fewest
    slope = torch.where(width > 0, (value[-1] - value[0]) / width.clamp_min(1.0), 0.0)
    offset = value[0] - slope * fewest
    bend = (value - slope * tp - offset).abs().amax(0)
    if float(bend.max()) > STRAIGHT * max(1.0, float(value.abs().max())):
        worst = int(bend.argmax())
        raise InvalidValueError(
            f"{metric.name} is not affine in the true positives at fixed margins: with {worst // (n + 1)} predicted "
            f"and {worst % (n + 1)} true positives of {n} samples it is {float(bend.max()):.2g} off a straight line. "
            "Adversarial prediction is for metrics such as accuracy, f1, fbeta, precision, recall, specificity, "
            "balanced_accuracy, mcc and kappa; MetricLoss takes any"
        )
    return slope, offset
