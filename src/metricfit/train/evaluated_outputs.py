"""The outputs that ``evaluate`` measures: of all samples together, or only their counts, added up batch by batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metricfit.core.class_shares import TargetJudge
from metricfit.core.counting import count_batch
from metricfit.core.counts import Counts
from metricfit.core.probabilities import logits_of
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical
from metricfit.core.types import Task
from metricfit.core.validation import check_nan_logits
from metricfit.errors import InvalidValueError
from metricfit.train.averaging import Averaging
from metricfit.train.data.batches import Batch, count_samples_at_once, refuse_outputs
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.samples import InMemory, Source
from metricfit.train.requested_metrics import Request, Threshold, choose_threshold, per_label
from metricfit.train.stage import match_shapes

#: Maximum number of logits that are counted at once; counting takes several times their memory.
COUNTED_AT_ONCE = 2**20


class Outputs(NamedTuple):
    """The logits of a batch with its labels, weights and groups, on the CPU."""

    logits: Tensor
    y: Tensor
    weight: Tensor | None
    group: Tensor | None


def compute_outputs(model: nn.Module, data: Source, batch_size: int | None) -> Iterator[Outputs]:
    """Yield the outputs of a model, in eval mode, batch by batch.

    Raises:
        ValueError: The model's outputs are not one row per sample, or there are no batches.
        TypeError: The model does not return a tensor.
    """
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    was_training = model.training
    model.eval()
    empty = True
    try:
        for batch in _read_batches(data, batch_size, device):
            with torch.no_grad():  # a generator does not keep the caller's
                outputs = model(batch.x.to(device) if isinstance(batch.x, Tensor) else batch.x)
            if not isinstance(outputs, Tensor):
                raise refuse_outputs(outputs)
            if outputs.dim() == 0 or len(outputs) != len(batch):
                raise InvalidValueError(
                    f"the model must return one row of logits per sample, got {tuple(outputs.shape)} for {len(batch)} "
                    "labels"
                )
            empty = False
            parts = [None if part is None else part.cpu() for part in (outputs, batch.y, batch.weight, batch.group)]
            del outputs, batch  # the caller may drop them before the next batch is read
            yield Outputs(*(parts.pop(0) for _ in range(4)))  # type: ignore[arg-type]
    finally:
        model.train(was_training)
    if empty:
        raise InvalidValueError("the DataLoader gives no batches, so there is nothing to evaluate")


def join_outputs(outputs: Iterable[Outputs]) -> Outputs:
    """Return the outputs of all batches together, for metrics that need them together."""
    parts = list(outputs)
    for name, given in (("weights", [part.weight for part in parts]), ("groups", [part.group for part in parts])):
        missing = sum(part is None for part in given)
        if 0 < missing < len(parts):
            raise InvalidValueError(
                f"{len(parts) - missing} of {len(parts)} batches have {name}; give them to all or to none"
            )
    columns = zip(*parts, strict=True)
    return Outputs(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]


def read_probabilities(outputs: Iterable[Outputs], task: Task | None, ignore_index: int | None) -> Iterator[Outputs]:
    """Yield outputs whose logits are those of a model's probabilities.

    Raises:
        ValueError: The model's outputs are no probabilities.
    """
    for part in outputs:
        probabilities, target = match_shapes(part.logits, part.y)
        yield part._replace(logits=logits_of(probabilities, target, task, ignore_index, exact=True))


def keeps_nothing(keep_logits: bool | None, logits: Tensor) -> bool:
    """Check whether logits are not part of the result: by default those of images, which are many."""
    return logits.dim() > 2 if keep_logits is None else not keep_logits


class CountedRows:
    """The counts of all rows at one threshold, in memory of the size of the counts.

    Args:
        requests: The metrics, all of counts at this threshold.
        threshold: The threshold that the user has set, or None.
        task: The task that the user has set, or None.
        ignore_index: Samples with this label are ignored.
        averaging: How values of classes and of images become one number.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        threshold: Threshold | str | None,
        task: Task | None,
        ignore_index: int | None,
        averaging: Averaging,
    ) -> None:
        self.requests = list(requests)
        self.asked, self.task, self.ignore_index, self.averaging = threshold, task, ignore_index, averaging
        self.threshold: Threshold = 0.5
        self.rows = 0
        self.weighted = 0
        self.parts: list[Counts] = []
        self.shares: list[Tensor] = []
        self.judge = TargetJudge()

    def add(self, outputs: Outputs) -> None:
        """Add the rows of a batch."""
        self.rows += len(outputs.y)
        self.weighted += 0 if outputs.weight is None else len(outputs.y)
        if self.weighted not in (0, self.rows):
            raise InvalidValueError("some batches have weights and others have none; give them to all or to none")
        check_nan_logits(outputs.logits)
        logits, target = match_shapes(outputs.logits, outputs.y)
        rows = max(1, COUNTED_AT_ONCE // max(1, logits[0].numel()))
        for first in range(0, len(logits), rows):
            part = slice(first, first + rows)
            self._add_part(logits[part], target[part], None if outputs.weight is None else outputs.weight[part])

    def _add_part(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> None:
        if self.task is None and logits.dim() == 2 and logits.shape == target.shape and logits.shape[1] > 1:
            self.judge.observe(target, self.ignore_index)
        samples = canonical(
            logits,
            target,
            CountSettings(
                task=self.task, ignore_index=self.ignore_index, per_image=self.averaging.per_image, validate=True
            ),
            weight=weight,
        )
        self.threshold = choose_threshold(samples, self.asked, None, "macro")
        matrix = any(
            metric is not None and metric.needs_matrix for metric in (request.metric for request in self.requests)
        )
        counts = count_batch(samples, per_label(self.threshold), matrix=matrix)
        counts = counts.with_tensors(tensor.double() for tensor in counts.tensors)
        if self.parts and not self.averaging.per_image:
            self.parts[0] = self.parts[0] + counts
        else:
            self.parts.append(counts)
        shares = self.averaging.weigh(counts, weight)
        self.shares += [] if shares is None else [shares]

    def measure(self) -> dict[str, Any]:
        """Return the values of an Evaluation, the metrics that are 0/0, and with ``per_image`` the images' values."""
        self.judge.conclude(f"target ({self.rows} rows)", stacklevel=4)
        counts = self.averaging.join(self.parts)
        shares = torch.cat(self.shares) if self.shares else None
        values, undefined, of_images = {}, set(), {}
        for request in self.requests:
            assert request.metric is not None
            values[request.name] = request.averaging.value(request.metric, counts, shares)
            if shares is not None:
                each = request.averaging.values(request.metric, counts)
                of_images[request.name] = torch.where(shares > 0, each, math.nan)
            elif request.averaging.is_undefined(request.metric, counts):
                undefined.add(request.name)
        return {"values": values, "undefined": frozenset(undefined), "per_image": of_images}


def _read_batches(data: Source, batch_size: int | None, device: torch.device) -> Iterator[Batch]:
    if isinstance(data, FromLoader):
        return data.batches(device)
    if batch_size is None:
        batch_size = count_samples_at_once(data.x[0] if isinstance(data, InMemory) else data.first())
    return data.batches(torch.split(torch.arange(len(data)), batch_size), device)
