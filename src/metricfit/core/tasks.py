"""From what a user passes to a Batch: which task it is, shapes settled, types checked, labels in range.

Checks are made here, once, and say what to do. Shapes and types are always checked. Values (labels out of range, NaN)
are looked at only in eager mode on the CPU or on request: looking at a value stalls a CUDA stream, and cannot be done
under ``torch.compile`` or ``vmap``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Batch, Classes, Columns
from metricfit.core.kernels.class_layout import Layout
from metricfit.core.numerics import counting_dtype
from metricfit.errors import InvalidTypeError, InvalidValueError, MetricfitError, quote

TASKS = ("binary", "multiclass", "multilabel")

READINGS = (
    "binary: logits (n,), (n, 1) or (n, 1, ...) with a target of that shape, with or without the 1; "
    "multiclass: logits (n, c, ...) with integer labels (n, ...); "
    "multilabel: logits (n, c) with a target (n, c)"
)


class DivergedError(MetricfitError, ValueError):
    """Logits are NaN or infinite."""


def canonical(
    logits: Tensor,
    target: Tensor,
    *,
    task: str | None = None,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    per_image: bool = False,
    group: Tensor | None = None,
    groups: int | None = None,
    validate: bool | None = None,
) -> Batch:
    """Settle the task, shapes and types of logits with their target."""
    check_tensors(logits, target, weight, group)
    reading = _reading(logits, target, task)
    x = logits.to(counting_dtype(logits.dtype))
    samples = tuple(x.shape[:1] + x.shape[2:])  # a sample is an entry, or a pixel, of the batch
    y = _class_target(target, x) if reading == "multiclass" else target.reshape(x.shape)
    w = (
        None
        if weight is None
        else spread_weight(weight, samples if reading == "multiclass" else tuple(x.shape), samples)
    )
    if ignore_index is not None:
        x, y, w = _without(ignore_index, x, y, w, class_axis=reading == "multiclass")
    if looks_at_values(x, validate):
        check_labels(y, x.shape[1] if reading == "multiclass" else None)
        if w is not None:
            check_weight(w)
    if per_image and x.dim() < 3:
        raise InvalidValueError(f"per_image=True needs images, logits (n, c, h, w); these are {_shape(logits)}")
    entries = samples if reading != "binary" or x.dim() == 1 or x.shape[1] == 1 else tuple(x.shape)
    ids, groups = _groups(group, groups, per_image, entries, looks_at_values(x, validate))
    w = None if w is None else w.to(x.dtype)
    if reading == "multiclass":
        return _classes(x, y, w, per_image, ids, groups)
    return _columns(x, y.to(x.dtype), w, reading, per_image, ids, groups)


def columns(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    owner: str,
    *,
    task: str | None = None,
    ignore_index: int | None = None,
    validate: bool | None = None,
) -> Columns:
    """A batch of yes-or-no questions, for losses that are defined for nothing else."""
    batch = canonical(logits, target, task=task, weight=weight, ignore_index=ignore_index, validate=validate)
    if isinstance(batch, Columns):
        return batch
    raise InvalidValueError(
        f"{owner} is for binary or multilabel logits; {_shape(logits)} with labels {_shape(target)} is multiclass"
    )


def _columns(
    x: Tensor, y: Tensor, w: Tensor | None, reading: str, per_image: bool, group: Tensor | None, groups: int
) -> Columns:
    classes = x.shape[1] if reading == "multilabel" else 1

    def settle(given: Tensor) -> Tensor:
        """``(c, n)``, or ``(images, c, pixels)`` to be counted per image."""
        if per_image:
            return given.reshape(x.shape[0], classes, math.prod(x.shape[2:]))
        return given.reshape(1, -1) if classes == 1 else given.movedim(1, 0).reshape(classes, -1)

    return Columns(settle(x), settle(y), None if w is None else settle(w), group, groups)


def _classes(x: Tensor, y: Tensor, w: Tensor | None, per_image: bool, group: Tensor | None, groups: int) -> Classes:
    if x.dim() == 2:
        return Classes(x, y, w, Layout(-1, (-2,)), group, groups)
    x = x.flatten(2)
    y = y.flatten(2) if y.is_floating_point() else y.flatten(1)
    layout = Layout(-2, (-1,) if per_image else (-3, -1))
    return Classes(x, y, None if w is None else w.flatten(1), layout, group, groups)


def check_task(task: str | None) -> None:
    """Refuse a task there is not."""
    if task is not None and task not in TASKS:
        raise InvalidValueError(f"task must be None or one of {', '.join(map(repr, TASKS))}, got {quote(task)}")


def _reading(logits: Tensor, target: Tensor, task: str | None) -> str:
    """Which task the shapes mean; an error where they mean none, or two."""
    check_task(task)
    shape, labels = tuple(logits.shape), tuple(logits.shape[:1] + logits.shape[2:])
    same, by_label = tuple(target.shape) == shape, tuple(target.shape) == labels
    whole = not target.is_floating_point()
    one_column = logits.dim() == 1 or (logits.dim() > 1 and shape[1] == 1)
    can_be = {
        "binary": (one_column and (same or by_label or _is_squeezed(target, logits)))
        or (task == "binary" and logits.dim() > 0 and same),
        "multiclass": not one_column and logits.dim() > 1 and ((by_label and whole) or same),
        "multilabel": not one_column and logits.dim() > 1 and same,
    }
    if task is not None:
        if not can_be[task]:
            raise InvalidValueError(_no_reading(logits, target, f"do not fit task={task!r}", by_label and not whole))
        return task
    if not any(can_be.values()):
        raise InvalidValueError(_no_reading(logits, target, "fit no task", by_label and not whole))
    if can_be["multilabel"] and logits.dim() > 2:
        raise InvalidValueError(
            f"logits and target {_shape(logits)} can be read as multilabel (each class a yes or no) or as multiclass "
            "with soft targets (class shares that sum to 1); say which with task='multilabel' or task='multiclass'"
        )
    return next(name for name in ("binary", "multilabel", "multiclass") if can_be[name])


def _class_target(target: Tensor, logits: Tensor) -> Tensor:
    """Class numbers as torch's indexing wants them, or class shares of the logits' type."""
    return target.to(logits.dtype) if target.shape == logits.shape else target.long()


def _is_squeezed(target: Tensor, logits: Tensor) -> bool:
    """Whether a target ``(n, 1)`` goes with logits ``(n,)``."""
    return logits.dim() == 1 and tuple(target.shape) == (*logits.shape, 1)


def _no_reading(logits: Tensor, target: Tensor, what: str, fractional_labels: bool) -> str:
    if fractional_labels and logits.dim() > 1 and logits.shape[1] > 1:
        return f"multiclass labels must be integers, got {target.dtype}; use target.long()"
    hint = "; add a batch axis with unsqueeze(0)" if logits.dim() == 0 else ""
    if logits.dim() and target.dim() and logits.shape[0] != target.shape[0]:
        hint = f"; they differ in length, {logits.shape[0]} and {target.shape[0]}"
    return f"logits {_shape(logits)} with target {_shape(target)} {what}{hint}. Possible: {READINGS}"


def _without(
    ignore_index: int, x: Tensor, y: Tensor, w: Tensor | None, *, class_axis: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Nothing of the ignored samples: weight 0, and harmless logits, since 0 times NaN is NaN."""
    if class_axis and y.is_floating_point():
        raise InvalidValueError("ignore_index needs labels; with soft targets give the samples to ignore weight 0")
    kept = y != ignore_index
    weight = kept.to(x.dtype) if w is None else torch.where(kept, w, 0.0)
    kept_logits = kept.unsqueeze(1) if class_axis else kept.reshape(x.shape)
    return torch.where(kept_logits, x, 0.0), torch.where(kept, y, 0), weight


def spread_weight(weight: Tensor, wanted: tuple[int, ...], samples: tuple[int, ...]) -> Tensor:
    """Expand weights per sample, or per row of the batch, to the shape ``wanted`` of all entries.

    Raises:
        ValueError: the shape of the weights is none of these.
    """
    given, n = tuple(weight.shape), samples[0]
    if given == wanted:
        return weight
    if given == samples:
        return weight.unsqueeze(1).expand(wanted)
    if given in ((n,), (n, 1)):
        return weight.reshape(n, *(1,) * (len(wanted) - 1)).expand(wanted)
    raise InvalidValueError(f"weight needs one number a sample, shape {samples}, got {given}")


def _groups(
    group: Tensor | None, groups: int | None, per_image: bool, samples: tuple[int, ...], looks: bool
) -> tuple[Tensor | None, int]:
    """Group numbers of all samples in a row, and how many groups there are."""
    if group is None:
        return None, 0
    n = samples[0]
    if per_image:
        raise InvalidValueError("counts are per group or per image, not both")
    if group.is_floating_point() or group.dtype == torch.bool or tuple(group.shape) != (n,):
        raise InvalidValueError(
            f"group needs one integer a row of the batch, shape ({n},), got {group.dtype} {_shape(group)}"
        )
    if groups is None:
        groups = int(group.max()) + 1 if group.numel() else 0
    if looks and group.numel():
        extremes = _extremes(group)
        if extremes is not None and not (extremes[0] >= 0 and extremes[1] < groups):
            raise InvalidValueError(
                f"group numbers must lie in 0..{groups - 1}, got {int(extremes[0])} to {int(extremes[1])}"
            )
    return group.long().reshape(n, *(1,) * (len(samples) - 1)).expand(samples).reshape(-1), groups


def looks_at_values(logits: Tensor, validate: bool | None) -> bool:
    """Whether label range and NaN are to be checked here."""
    if torch.compiler.is_compiling():
        return False
    return logits.device.type == "cpu" if validate is None else validate


def check_finite(sums: Tensor, logits: Tensor) -> None:
    """Explain sums over samples that are not finite: by the logits, for labels and weights have been checked."""
    total = _known(sums.sum())
    if total is None or math.isfinite(total):
        return
    check_nan_logits(logits)
    if bool(logits.isinf().any()):
        raise DivergedError(
            f"{int(logits.isinf().sum())} of {logits.numel()} logits are infinite; the model has diverged"
        )
    raise InvalidValueError(
        "the batch's sums are not finite although its logits, labels and weights are: do they overflow?"
    )


def check_nan_logits(logits: Tensor) -> None:
    """Refuse NaN logits, saying how many there are and where the first is."""
    if not is_false(~logits.isnan().any()):
        return
    bad = logits.detach().isnan().reshape(-1)
    first = int(bad.int().argmax())
    raise DivergedError(
        f"{int(bad.sum())} of {bad.numel()} logits are NaN, the first at position {first}; the model has diverged "
        "or its input holds NaN: lower the learning rate, clip gradients, or look for NaN in the features"
    )


def is_false(flag: Tensor) -> bool:
    """Whether a 0-d flag is known to be false; under vmap a value cannot be looked at, and nothing is known."""
    return _known(flag) == 0


def _known(number: Tensor) -> float | None:
    """The value of a 0-d tensor, or None under vmap."""
    try:
        return float(number)
    except RuntimeError:
        return None


def _extremes(given: Tensor) -> tuple[float, float] | None:
    """The smallest and largest value, NaN if any is; None under vmap."""
    low, high = torch.aminmax(given.detach())
    try:
        return float(low), float(high)
    except RuntimeError:
        return None


def check_tensors(logits: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None = None) -> None:
    """Refuse arguments that are no tensors, are complex or lie on different devices, and logits that are integers."""
    named = {"logits": logits, "target": target, "weight": weight, "group": group}
    for name, given in named.items():
        if given is None and name in ("weight", "group"):
            continue
        if not isinstance(given, Tensor):
            raise InvalidTypeError(
                f"{name} must be a torch tensor, got {type(given).__name__}; use torch.as_tensor({name})"
            )
        if given.device != logits.device:
            raise InvalidValueError(
                f"logits are on {logits.device} and {name} on {given.device}; use {name}.to(logits.device)"
            )
        if given.is_complex():
            raise InvalidTypeError(f"{name} must be real, got {given.dtype}")
    if not logits.is_floating_point():
        raise InvalidTypeError(
            f"logits must be floating point, got {logits.dtype}; pass the model's raw outputs, not labels or decisions"
        )


def check_labels(target: Tensor, classes: int | None) -> None:
    """Labels, or shares, in range; ``classes`` is None where each entry is a yes or no."""
    if target.dtype == torch.bool or target.numel() == 0:
        return
    by_number = classes is not None and not target.is_floating_point()
    highest = classes - 1 if by_number and classes is not None else 1
    extremes = _extremes(target)
    if extremes is None or (extremes[0] >= 0 and extremes[1] <= highest):
        return
    if target.is_floating_point() and bool(target.isnan().any()):
        raise InvalidValueError(
            f"target holds NaN in {int(target.isnan().sum())} of {target.numel()} places; drop those rows"
        )
    lowest, largest = extremes
    if by_number:
        hint = f"; pass ignore_index={lowest:g} to leave those samples out" if lowest in (-1.0, -100.0) else ""
        if lowest == 1.0 and largest == classes:
            hint = "; map labels from 1 on with target - 1"
        raise InvalidValueError(f"{classes} classes need labels 0 to {highest}, got {lowest:g} to {largest:g}{hint}")
    hint = {(-1.0, 1.0): "; map labels -1/1 with (target + 1) / 2", (1.0, 2.0): "; map labels 1/2 with target - 1"}.get(
        (lowest, largest), ""
    )
    raise InvalidValueError(
        f"binary labels must be 0 or 1 (or probabilities between), got values from {lowest:g} to {largest:g}{hint}; "
        "ignore_index= leaves out one value"
    )


def check_weight(weight: Tensor) -> None:
    """Refuse weights that are negative, infinite or NaN."""
    if weight.numel() == 0:
        return
    extremes = _extremes(weight)
    if extremes is not None and not (extremes[0] >= 0 and extremes[1] < math.inf):
        raise InvalidValueError(
            f"weights must be finite and at least 0, got values from {extremes[0]:g} to {extremes[1]:g}"
        )


def _shape(given: Tensor) -> str:
    return str(tuple(given.shape))
