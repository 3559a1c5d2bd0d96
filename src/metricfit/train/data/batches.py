"""The batch class, and batches from the items of a DataLoader."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError, quote

#: Maximum number of samples, and of numbers in their inputs, in one forward pass of an evaluation.
SAMPLES_AT_ONCE, NUMBERS_AT_ONCE = 8192, 2**22


@dataclass(frozen=True)
class Batch:
    """Inputs and labels of a batch, with weights, sample numbers and groups where they are known."""

    x: Any
    y: Tensor
    weight: Tensor | None = None
    index: Tensor | None = None
    group: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def without_samples(self) -> Batch:
        """Return the inputs without samples, for a process that must run the model because the others wait for it."""
        optional = (None if part is None else part[:0] for part in (self.weight, self.index, self.group))
        return Batch(self.x, self.y[:0], *optional)

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; x must be tensors in tuples, lists and dictionaries, or None."""
        parts = (self.x, self.y, self.weight, self.index, self.group)
        return Batch(*(_move(part, device) for part in parts))


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Return the labels, weights and groups of several batches together.

    Raises:
        ValueError: Some batches have weights or groups, and others do not.
    """
    optional: dict[str, Tensor] = {}
    for name, text in (("weight", "weights"), ("group", "groups")):
        parts = [part for batch in batches if (part := getattr(batch, name)) is not None]
        if parts and len(parts) < len(batches):
            raise InvalidValueError(f"{len(parts)} of {len(batches)} batches have {text}; give them to all or to none")
        optional |= {name: torch.cat(parts)} if parts else {}
    return Batch(None, torch.cat([batch.y for batch in batches]), **optional)


def make_batch(item: Any, device: torch.device, dtype: torch.dtype | None = None) -> Batch:
    """Make a batch from an item of a DataLoader.

    Args:
        item: ``(x, y)``, ``(x, y, weight)``, or a dictionary with "x" and "y" and optionally "weight" and "group".
        device: The device of the batch.
        dtype: The type of the inputs, if they are one floating-point tensor.

    Returns:
        The batch on the device.
    """
    if isinstance(item, dict):
        if not {"x", "y"} <= item.keys():
            raise InvalidValueError(f"a batch that is a dictionary needs 'x' and 'y', got {sorted(map(str, item))}")
        parts = [item["x"], item["y"], item.get("weight"), item.get("group")]
    elif isinstance(item, (tuple, list)) and len(item) in (2, 3):
        parts = [*item, None, None][:4]
    else:
        raise InvalidTypeError(f"a batch must be (x, y) or (x, y, weight), got {type(item).__name__}")
    x, y, weight, group = (_move(part, device) for part in parts)
    if dtype is not None and isinstance(x, Tensor) and x.is_floating_point():
        x = x.to(dtype)
    return Batch(x, y, weight, group=group)


def _move(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor):
        return part.to(device, non_blocking=True)
    if isinstance(part, (tuple, list)):
        return type(part)(_move(entry, device) for entry in part)
    if isinstance(part, dict):
        return {key: _move(entry, device) for key, entry in part.items()}
    return part


def count_samples_at_once(sample: Any, at_least: int = 1) -> int:
    """Return how many samples are evaluated in one forward pass: fewer if they are large, such as images.

    Args:
        sample: The inputs of one sample: a tensor, or tuples, lists and dictionaries of them.
        at_least: A number that is known to fit into memory.

    Example:
        >>> count_samples_at_once(torch.zeros(10)), count_samples_at_once(torch.zeros(3, 512, 512))
        (8192, 5)
    """
    return max(at_least, min(SAMPLES_AT_ONCE, NUMBERS_AT_ONCE // max(1, _count_numbers(sample))))


def _count_numbers(part: Any) -> int:
    if isinstance(part, Tensor):
        return part.numel()
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, (tuple, list)) else ()
    return sum(map(_count_numbers, parts))


def check_outputs(outputs: Any, rows: int | None) -> Tensor:
    """Return a model's outputs if they are one tensor with one row per sample.

    Args:
        outputs: What the model returned.
        rows: The number of samples, if it is known.

    Raises:
        TypeError: They are not a tensor; the message has a wrapper that picks the logits.
        ValueError: They have another number of rows.

    Example:
        >>> check_outputs(torch.zeros(2), 2)
        tensor([0., 0.])
    """
    if isinstance(outputs, Tensor):
        if outputs.dim() == 0 or rows not in (None, len(outputs)):
            raise InvalidValueError(
                f"the model must return one row of logits per sample, got {tuple(outputs.shape)} for "
                f"{'a batch' if rows is None else rows}"
            )
        return outputs
    kind, key = f"a {type(outputs).__name__}", None
    if isinstance(outputs, Mapping):
        kind += f" with {', '.join(map(quote, outputs))}"
        key = "logits" if "logits" in outputs else next(iter(outputs), None)
    elif isinstance(outputs, (tuple, list)):
        kind, key = f"{kind} of {len(outputs)}", 0
    pick = "" if key is None else f": return self.model(x)[{key!r}]"
    raise InvalidTypeError(
        f"the model must return a tensor of logits, got {kind}; wrap it in a module whose forward returns the "
        f"logits{pick}"
    )


@dataclass(frozen=True)
class Batches:
    """How an epoch is divided into batches.

    Batches have nearly equal sizes, so that the last one is not too small to compute a metric: with a batch size of
    1,024, 1,025 samples make batches of 513 and 512.

    Args:
        size: Maximum number of samples per batch.
        stratified: Distribute each class evenly over the batches, and add a positive to batches without one.
        oversample: Repeat positives until they are this share of the epoch.

    Raises:
        ValueError: A number is out of range.

    Example:
        >>> Batches(100, stratified=True).steps(250)
        3
    """

    size: int
    stratified: bool = False
    oversample: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.size, Integral) or self.size < 1:
            raise InvalidValueError(f"batch_size must be an integer of at least 1, got {self.size}")
        if self.oversample is not None and not 0.0 < self.oversample < 1.0:
            raise InvalidValueError(
                f"oversample is the share of positives to reach, strictly between 0 and 1, got {self.oversample}"
            )

    def divide(self, labels: Tensor, seed: int, stage: int, epoch: int, steps: int | None = None) -> list[Tensor]:
        """Divide an epoch into batches.

        Args:
            labels: The labels of the samples, on the CPU.
            seed: The seed of the order.
            stage: The number of the stage, on which the order depends too.
            epoch: The number of the epoch in the stage.
            steps: The number of batches; by default as few as ``size`` allows.

        Returns:
            The sample numbers of each batch.
        """
        labels = _as_row(labels)
        generator = torch.Generator().manual_seed(derive_seed(seed, stage, epoch))
        if self.oversample is None:
            shuffled = torch.randperm(len(labels), generator=generator)
        else:
            positives = (labels > 0).nonzero().flatten()
            drawn = torch.randint(len(positives), (_count_missing(labels, self.oversample),), generator=generator)
            chosen = torch.cat([torch.arange(len(labels)), positives[drawn]])
            shuffled = chosen[torch.randperm(len(chosen), generator=generator)]
        steps = steps or self.steps(len(shuffled))
        if not self.stratified:
            return list(shuffled.tensor_split(steps))
        by_class = shuffled[labels[shuffled].argsort(stable=True)]  # sorted by class, then dealt like cards
        dealt = [by_class[start::steps] for start in range(steps)]
        positives = (labels > 0).nonzero().flatten()
        return [
            hand
            if bool((labels[hand] > 0).any())
            else torch.cat([hand, positives[torch.randint(len(positives), (1,), generator=generator)]])
            for hand in dealt
        ]

    @property
    def depend_on_labels(self) -> bool:
        """Whether the order of samples depends on their labels."""
        return self.stratified or self.oversample is not None

    def steps(self, samples: int) -> int:
        """Return the number of batches for a number of samples.

        Args:
            samples: The number of samples.

        Returns:
            The number of batches, at least 1.
        """
        return max(1, -(-samples // self.size))

    def steps_per_epoch(self, labels: Tensor) -> int:
        """Return the number of batches per epoch, including repeated positives.

        Args:
            labels: The labels of the samples.

        Returns:
            The number of batches.
        """
        extra = 0 if self.oversample is None else _count_missing(labels, self.oversample)
        return self.steps(len(labels) + extra)

    def check(self, labels: Tensor) -> None:
        """Check that the options make sense for these labels.

        Args:
            labels: The labels of the samples.

        Raises:
            ValueError: They are labels of one class, or several per sample.
        """
        if not self.depend_on_labels:
            return
        labels = _as_row(labels)
        option = "stratified" if self.stratified else "oversample"
        if labels.dim() != 1:
            raise InvalidValueError(
                f"{option} batches need one label per sample, but the labels have shape {tuple(labels.shape)}"
            )
        if not bool((labels > 0).any()) or bool((labels > 0).all()):
            raise InvalidValueError(
                f"{option} batches need positives and negatives; all labels are {labels[0].item():g}"
            )


def _as_row(labels: Tensor) -> Tensor:
    """Turn a column of labels into a row; other shapes are unchanged."""
    return labels.squeeze(1) if labels.dim() == 2 and labels.shape[1] == 1 else labels


def _count_missing(labels: Tensor, share: float) -> int:
    positives = int((labels > 0).sum())
    return max(0, round(share * (len(labels) - positives) / (1 - share)) - positives)


def derive_seed(*parts: int | str) -> int:
    """Derive a seed from several values; different values give different seeds, except by accident."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
