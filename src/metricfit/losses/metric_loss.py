"""MetricLoss: any metric of confusion counts as a loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.core.distributed import number_of_ranks, sum_over_ranks
from metricfit.core.steps import Step, check_threshold
from metricfit.core.task import is_false, looks_at_values
from metricfit.losses.average import AVERAGES, averaged
from metricfit.losses.memory import RunningCounts
from metricfit.losses.watch import GradientWatch
from metricfit.metrics.base import Formula, Metric, get_metric


class MetricLoss(nn.Module):
    r"""One minus a metric of soft confusion counts; the metric itself where lower is better.

    .. math:: L = 1 - M\Big(\sum_i y_i h_i,\; \sum_i (1-y_i) h_i,\; \sum_i y_i (1-h_i),\; \sum_i (1-y_i)(1-h_i)\Big),
        \qquad h_i = \mathrm{step}(\sigma(x_i), t)

    Tsoi et al. 2022 with the Linear step, Han et al. 2024 (AnyLoss) with Sigmoid, soft Dice with Identity.

    Args:
        metric: a Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts.
        step: the soft decision; Linear(0.1) by default.
        threshold: where decisions will be made, 0.5 by default. With several the loss is the mean over them.
        task: "binary", where the shapes do not tell.
        average: "macro", "micro", "weighted" or None (one loss a class); a binary metric is itself under each.
        ignore_index: samples with this target count for nothing.
        per_image: counts per image and the mean of their metrics, instead of counts over the batch.
        memory: RunningCounts, for batches too small to measure the metric on.
        sync: in a distributed run, sum counts over the ranks, so that the gradient is that of the whole batch.
        validate: look at labels and logits for values out of range and NaN: by default in eager mode on the CPU.

    A batch without positives gives the value 0 to metrics that need them, and a finite gradient.

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
        threshold: float | Sequence[float] | Tensor | None = None,
        task: str | None = None,
        average: str | None = "macro",
        ignore_index: int | None = None,
        per_image: bool = False,
        memory: RunningCounts | None = None,
        sync: bool = True,
        validate: bool | None = None,
    ) -> None:
        super().__init__()
        self.metric = get_metric(metric)
        if step is not None and not isinstance(step, Step):
            raise TypeError(f"step must be one of metricfit.steps, such as Linear(0.1), got {step!r}")
        if memory is not None and not isinstance(memory, RunningCounts):
            raise TypeError(f"memory must be RunningCounts(decay=...), got {memory!r}")
        if average not in AVERAGES:
            raise ValueError(f"average must be 'macro', 'micro', 'weighted' or None, got {average!r}")
        if average == "micro" and any(isinstance(given, tuple) for given in self.metric.parameters.values()):
            raise ValueError(f"{self.metric.name} has a parameter per class, which average='micro' has no classes for")
        self.step = step
        self.memory = memory
        self.task = task
        self.average = average
        self.ignore_index = ignore_index
        self.per_image = per_image
        self.sync = sync
        self.validate = validate
        self._set_threshold(threshold)
        self._watch = GradientWatch()

    def _set_threshold(self, threshold: float | Sequence[float] | Tensor | None) -> None:
        self.threshold: float | tuple[float, ...] | Tensor | None
        if isinstance(threshold, Tensor) and not isinstance(threshold, nn.Parameter):
            self.register_buffer("threshold", threshold)
            return
        if threshold is None or isinstance(threshold, (str, float, int, Tensor)):
            self.threshold = threshold
        else:
            self.threshold = tuple(float(one) for one in threshold)
        if isinstance(threshold, str):
            raise ValueError(f"a binary threshold is a number or several, got {threshold!r}")
        for one in self.threshold if isinstance(self.threshold, tuple) else (self.threshold,):
            if one is not None:
                check_threshold(one)

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch of logits."""
        counts = Counts.soft(
            logits,
            target,
            task=self.task,
            step=self.step,
            threshold=self.threshold,
            weight=weight,
            ignore_index=self.ignore_index,
            per_image=self.per_image,
            validate=self.validate,
        )
        if self.sync and self.training and torch.is_grad_enabled() and number_of_ranks() > 1:
            counts = Counts(*sum_over_ranks(torch.stack(tuple(counts))))
        if self.memory is not None:
            counts = self.memory(counts)
        value = averaged(self.metric, counts, self.average)
        looks = looks_at_values(logits, self.validate)
        if looks and is_false(value.detach().isfinite().all()):
            raise ValueError(
                f"{self.metric.name} is not finite at {counts}; divide with metricfit.metrics.ratio, which is 0 where "
                "the denominator is, and take roots with metricfit.metrics.root"
            )
        if value.dim() > (self.average is None):  # several thresholds
            value = value.mean(0)
        loss = value if self.metric.minimize else 1 - value
        if looks and self.training:
            self._watch.watch(loss, logits, f"MetricLoss({self.metric.name!r})")
        return loss

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
