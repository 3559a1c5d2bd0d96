"""MetricLoss: any metric of confusion counts as a loss."""

from __future__ import annotations

from numbers import Real
from typing import Literal

import torch
from torch import Tensor, nn

from metricfit.core.class_shares import TargetJudge
from metricfit.core.counting import count_soft
from metricfit.core.counts import Counts
from metricfit.core.numerics import has_storage, ratio
from metricfit.core.steps import Step, check_threshold
from metricfit.core.tasks import check_task
from metricfit.core.types import Average, Task, Thresholds
from metricfit.core.validation import is_false, looks_at_values
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import AdditiveLoss, Statistics
from metricfit.losses.gradient_watch import GradientWatch, ProgressWatch
from metricfit.losses.memory import RunningCounts
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.metric import Formula, Metric, get_metric


class MetricLoss(AdditiveLoss):
    r"""One minus a metric of soft confusion counts; the metric itself where lower is better.

    .. math:: L = 1 - M\Big(\sum_i y_i h_i,\; \sum_i (1-y_i) h_i,\; \sum_i y_i (1-h_i),\; \sum_i (1-y_i)(1-h_i)\Big),
        \qquad h_i = \mathrm{step}(\sigma(x_i), t)

    Tsoi et al. 2022 with the Linear step, Han et al. 2024 (AnyLoss) with Sigmoid, soft Dice with Identity.

    Args:
        metric: a Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts.
        step: the soft decision; by default Linear(0.1), for multiclass Linear(0.2).
        threshold: where decisions will be made; by default 0.5, for multiclass "dynamic", the mean of a sample's two
            largest probabilities. With several the loss is the mean over them.
        task: "binary", "multiclass" or "multilabel", where the shapes do not tell.
        average: "macro", "micro", "weighted" or None (one loss a class). A binary metric is itself under each, and so
            is one of the whole confusion matrix: accuracy, mcc, kappa, balanced_accuracy.
        ignore_index: samples with this target count for nothing.
        per_image: counts per image and the mean of their metrics, instead of counts over the batch.
        memory: RunningCounts, for batches too small to measure the metric on.
        sync: in a distributed run, sum counts over the ranks, so that the gradient is that of the whole batch.
        validate: look at labels and logits for values out of range and NaN: by default in eager mode on the CPU.

    A binary batch without positives gives the value 0 to metrics that need them, and a finite gradient. Of several
    classes those without a true sample are left out of the macro average; ``left_out()`` names them.

    >>> loss = MetricLoss("f1")
    >>> logits = torch.tensor([2.0, 0.5, -1.0, -3.0], requires_grad=True)
    >>> loss(logits, torch.tensor([1, 0, 1, 0]))
    tensor(0.4298, grad_fn=<RsubBackward1>)
    """

    def __init__(
        self,
        metric: str | Metric | Formula,
        *,
        step: Step | None = None,
        threshold: Thresholds = None,
        task: Task | None = None,
        average: Average = "macro",
        ignore_index: int | None = None,
        per_image: bool = False,
        memory: RunningCounts | None = None,
        sync: bool = True,
        validate: bool | None = None,
    ) -> None:
        super().__init__(sync=sync)
        self.metric = get_metric(metric)
        if step is not None and not isinstance(step, Step):
            raise InvalidTypeError(f"step must be one of metricfit.steps, such as Linear(0.1), got {quote(step)}")
        if memory is not None and not isinstance(memory, RunningCounts):
            raise InvalidTypeError(f"memory must be RunningCounts(decay=...), got {quote(memory)}")
        check_average(self.metric, average)
        check_task(task)
        if per_image and memory is not None:
            raise InvalidValueError(
                "a memory is of counts over batches; with per_image=True every image is measured alone"
            )
        self.step = step
        self.memory = memory
        self.task = task
        self.average = average
        self.ignore_index = ignore_index
        self.per_image = per_image
        self.validate = validate
        self._set_threshold(threshold)
        self._watch = GradientWatch()
        self._progress = ProgressWatch()
        self._judge = TargetJudge()
        self._last_counts: Counts | None = None

    def _set_threshold(self, threshold: Thresholds) -> None:
        self.threshold: float | Literal["dynamic"] | tuple[float, ...] | Tensor | None
        if isinstance(threshold, Tensor):
            if threshold.dim() > 1:
                raise InvalidValueError(
                    f"thresholds are a number or a list of them, got shape {tuple(threshold.shape)}"
                )
            if threshold.device.type == "cpu":
                for one in threshold.detach().reshape(-1).tolist():
                    check_threshold(one)
            if not isinstance(threshold, nn.Parameter):
                self.register_buffer("threshold", threshold)
                return
        if isinstance(threshold, Real):
            threshold = float(threshold)
        if isinstance(threshold, str) and threshold != "dynamic":
            raise InvalidValueError(
                f"a threshold is a number, several, or for multiclass 'dynamic', got {quote(threshold)}"
            )
        if not (threshold is None or isinstance(threshold, (str, float, Tensor))):
            threshold = tuple(float(one) for one in threshold)
        if threshold == ():
            raise InvalidValueError("no threshold given; leave it out for the usual one")
        for one in threshold if isinstance(threshold, tuple) else (threshold,):
            if isinstance(one, (int, float)):
                check_threshold(one)
        self.threshold = threshold

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch of logits."""
        loss = super().forward(logits, target, weight)
        looks = self.training and logits.numel() > 0 and looks_at_values(logits, self.validate)
        if looks and self._watch.due() and not self._lacks_a_class():
            self._watch.watch(loss, logits, f"MetricLoss({self.metric.name!r})")
        if looks and loss.requires_grad and loss.dim() == 0 and self.memory is None and not self.metric.minimize:
            counts = self._last_counts
            if counts is not None and counts.exclusive and counts.tp.shape[-1] > 2:
                self._progress.see(loss, counts, f"MetricLoss({self.metric.name!r})")
        return loss

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Statistics:
        """The soft Counts of the batch; with ``per_image=True`` the sum of the images' values and their number.

        Statistics of several batches add, and ``value`` of the sum is the loss of all of them together:
        ``loss.value(sum(loss.statistics(x, y) for x, y in batches))``.
        """
        counts = count_soft(
            logits,
            target,
            step=self.step,
            threshold=self.threshold,
            task=self.task,
            weight=weight,
            ignore_index=self.ignore_index,
            per_image=self.per_image,
            validate=self.validate,
            judge=self._judge,
        )
        if not self.per_image:
            return counts
        value = self._measure(counts)
        images = value if counts.tp.dim() == 2 else value.mean(0)  # over several thresholds
        total = images.sum(0)
        return torch.stack([total, torch.full_like(total, len(images))])

    def value(self, statistics: Statistics) -> Tensor:
        """The loss of these statistics, with the remembered counts added where there is a memory."""
        wanted = Tensor if self.per_image else Counts
        if not isinstance(statistics, wanted):
            raise InvalidTypeError(
                f"value takes what statistics() of this loss returns, {wanted.__name__}, "
                f"got {type(statistics).__name__}; add the statistics of several batches with sum()"
            )
        if isinstance(statistics, Counts):
            value = self._measure(statistics if self.memory is None else self.memory(statistics))
            if statistics.tp.dim() > 1:  # several thresholds
                value = value.mean(0)
        else:
            value = ratio(statistics[0], statistics[1])
        return value if self.metric.minimize else 1 - value

    def _measure(self, counts: Counts) -> Tensor:
        if not torch.compiler.is_compiling() and has_storage(counts.tp):
            self._last_counts = counts.map(torch.detach)
        value = averaged(self.metric, counts, self.average, training=True)
        if (
            self.metric.user_defined
            and looks_at_values(value, self.validate)
            and is_false(value.detach().isfinite().all())
        ):
            raise InvalidValueError(
                f"{self.metric.name} is not finite at {counts}; divide with metricfit.metrics.ratio, which is 0 where "
                "the denominator is, and take roots with metricfit.metrics.root"
            )
        return value

    def _lacks_a_class(self) -> bool:
        """Whether the last counts hold no positives, or nothing else: then it is not the step that teaches nothing."""
        if self._last_counts is None:
            return True
        positives, negatives = self._last_counts.positives, self._last_counts.negatives
        return is_false(((positives > 0) & (negatives > 0)).any())

    def left_out(self) -> list[int]:
        """The classes that the last batch had no true sample of, and that its macro average therefore left out.

        With several thresholds or images, the classes that none of them has a sample of. Empty for a binary loss, for
        other averages and for metrics that need no positives. (Not kept up under torch.compile.)
        """
        whole = self.metric.whole_matrix or self.metric.class_index is not None
        if self._last_counts is None or self.average != "macro" or whole:
            return []
        positives = self._last_counts.positives
        if positives.shape[-1] == 1 or "positives" not in self.metric.needs:
            return []
        return (positives.reshape(-1, positives.shape[-1]).sum(0) == 0).nonzero().flatten().tolist()

    def extra_repr(self) -> str:
        """The settings that differ from the defaults."""
        settings = [repr(self.metric.name)]
        defaults = {
            "threshold": None,
            "task": None,
            "average": "macro",
            "ignore_index": None,
            "per_image": False,
        }
        settings += [
            f"{name}={getattr(self, name)!r}" for name, usual in defaults.items() if getattr(self, name) is not usual
        ]
        return ", ".join(settings)
