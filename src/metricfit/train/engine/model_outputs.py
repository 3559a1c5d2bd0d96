"""The outputs of one model for samples to measure on, batch by batch or of all samples together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError
from metricfit.train.data.batches import Batch, count_samples_at_once
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.samples import InMemory, Source
from metricfit.train.engine.ranks import gather_batch

NO_BATCHES = "the validation DataLoader gives no batches, so there is nothing to measure on"


def compute_outputs(
    fabric: Any, model: nn.Module, data: Source, lay_out: Callable[[Any], Any], at_least: int = 1
) -> Iterator[tuple[Tensor, Batch]]:
    """Yield the logits of this rank's share of the samples with their batches, in eval mode and without gradient.

    Args:
        fabric: The launched Fabric, or one device without it.
        model: The model, which is in training mode again at the end.
        data: The samples.
        lay_out: Brings inputs into the layout that the model prefers.
        at_least: Number of samples that one pass takes at least, such as the size of the batches in training.

    Raises:
        ValueError: A loader gives no batches.
    """
    model.eval()
    empty = True
    try:
        for batch in _take_share(fabric, data, at_least):
            empty = False
            with torch.no_grad():
                logits = drop_uncounted(model(lay_out(batch.x)), batch)
            yield logits, batch
    finally:
        model.train()
    if empty:
        raise InvalidValueError(NO_BATCHES)


def join_outputs(outputs: Iterable[tuple[Tensor, Batch]]) -> tuple[Tensor, Batch]:
    """Return the logits of the samples of all ranks, with labels, weights and groups."""
    parts = list(outputs)
    logits = torch.cat([part for part, _ in parts])
    y = torch.cat([batch.y for _, batch in parts])
    optional: dict[str, Tensor] = {}
    for name in ("weight", "group"):
        values = [value for _, batch in parts if (value := getattr(batch, name)) is not None]
        optional |= {name: torch.cat(values)} if values else {}
    return gather_batch(logits, Batch(None, y, **optional))


def _take_share(fabric: Any, data: Source, at_least: int) -> Iterator[Batch]:
    """Yield the batches that this rank evaluates; without samples, one batch that does not count."""
    if isinstance(data, FromLoader):
        yield from data.batches(fabric.device)
        return
    numbers = torch.arange(len(data))
    share = numbers.tensor_split(fabric.world_size)[fabric.global_rank]
    sample = data.x[0] if isinstance(data, InMemory) else data.first()
    order = torch.split(share if len(share) else numbers[:1], count_samples_at_once(sample, at_least))
    for batch in data.batches(order, fabric.device):
        yield batch if len(share) else batch.without_samples()


def drop_uncounted(logits: Tensor, batch: Batch) -> Tensor:
    """Return the logits of the batch's samples; a batch without samples has none, although the model ran."""
    return logits if len(batch) else logits[:0]


def has_2d_convolutions(model: nn.Module) -> bool:
    """Check whether a model convolves images, which most libraries do faster if the channels come last."""
    return any(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in model.modules())
