"""Which task the shapes of logits and target mean, and the batch in the one layout that the kernels take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from metricfit.core.arrays import Array, cast, counting_type, is_boolean, is_floating, move_axis, namespace
from metricfit.core.canonical_batch import Batch, Classes, Columns
from metricfit.core.class_shares import TargetJudge, inspects_targets
from metricfit.core.numerics import where
from metricfit.core.settings import DEFAULT, CountSettings
from metricfit.core.types import Layout, Task
from metricfit.core.validation import (
    check_labels,
    check_shares,
    check_tensors,
    check_weight,
    extremes,
    is_false,
    looks_at_values,
)
from metricfit.errors import InvalidTypeError, InvalidValueError, quote

TASKS: tuple[Task, ...] = get_args(Task)

#: The order in which tasks are tried. A target of the logits' shape is multilabel unless the user says otherwise.
PRECEDENCE: tuple[Task, ...] = ("binary", "multilabel", "multiclass")

READINGS = (
    "binary: logits (n,), (n, 1) or (n, 1, ...) with a target of that shape, with or without the 1; "
    "multiclass: logits (n, c, ...) with integer labels (n, ...); "
    "multilabel: logits (n, c) with a target (n, c)"
)


def canonical(
    logits: Array,
    target: Array,
    settings: CountSettings = DEFAULT,
    *,
    weight: Array | None = None,
    group: Array | None = None,
    judge: TargetJudge | None = None,
    keep_types: bool = False,
    arrays: bool = False,
) -> Batch:
    """Determine the task, check the arguments, and bring them into the layout that the kernels take.

    Args:
        logits: The outputs of the model.
        target: The labels.
        settings: How the batch is read.
        weight: One weight per sample.
        group: One group number per row.
        judge: What inspects targets that could be read in two ways; None to take them as they are.
        keep_types: Whether columns may keep the types of logits and target on a device whose kernels read all of them.

        arrays: Whether NumPy arrays are taken too, as for hard counts.

    Returns:
        The batch.

    Raises:
        InvalidValueError: Shapes, labels or weights do not fit; the message says what to do.
        InvalidTypeError: An argument is not a tensor, or the logits are integers.
    """
    task, _, _, ignore_index, per_image, groups, validate = settings
    check_tensors(logits, target, weight, group, arrays=arrays)
    target = without_channel(logits, target, validate)
    reading = read_task(logits, target, task)
    if reading == "multilabel" and task is None and judge is not None and inspects_targets(logits, validate):
        judge.look(target, ignore_index)
    dtype = counting_type(logits)
    keep_types = keep_types and reading != "multiclass" and logits.device.type == "cuda" and group is None
    x = logits if keep_types else cast(logits, dtype)
    # A sample is an entry, or a pixel, of the batch; binary logits may have no class axis.
    whole = reading == "binary" and x.ndim > 1 and x.shape[1] != 1
    samples = tuple(x.shape) if whole else tuple(x.shape[:1] + x.shape[2:])
    y = _class_target(target, x) if reading == "multiclass" else target.reshape(x.shape)
    w = (
        None
        if weight is None
        else spread_weight(weight, samples if reading == "multiclass" else tuple(x.shape), samples)
    )
    if ignore_index is not None:
        if isinstance(ignore_index, (bool, Sequence)):
            raise InvalidTypeError(f"ignore_index is one label, such as 255 or -1, got {quote(ignore_index)}")
        x, y, w = _ignore(ignore_index, x, y, w, class_axis=reading == "multiclass")
    if looks_at_values(x, validate):
        check_labels(y, x.shape[1] if reading == "multiclass" else None)
        if w is not None:
            check_weight(w)
        if reading == "multiclass" and is_floating(y):
            check_shares(y, w, target)
    if per_image and x.ndim < 3:
        raise InvalidValueError(f"per_image=True needs images, logits (n, c, h, w); these are {_shape(logits)}")
    ids, groups = _read_groups(group, groups, per_image, samples, looks_at_values(x, validate))
    w = None if w is None else cast(w, dtype)
    if reading == "multiclass":
        return _make_classes(x, y, w, per_image, ids, groups)
    return _make_columns(x, y if keep_types else cast(y, dtype), w, reading, per_image, ids, groups)


def columns(
    logits: Array,
    target: Array,
    weight: Array | None,
    owner: str,
    *,
    task: Task | None = None,
    ignore_index: int | None = None,
    validate: bool | None = None,
    for_classes: str = "",
) -> Columns:
    """Return a binary or multilabel batch, for losses that are not defined for exclusive classes.

    ``for_classes`` names the losses to use for exclusive classes, for the message.
    """
    settings = CountSettings(task=task, ignore_index=ignore_index, validate=validate)
    batch = canonical(logits, target, settings, weight=weight)
    if isinstance(batch, Columns):
        return batch
    remedy = f"; for classes that exclude each other use {for_classes}" if for_classes else ""
    raise InvalidValueError(
        f"{owner} is for binary or multilabel logits; {_shape(logits)} with labels {_shape(target)} is "
        f"multiclass{remedy}"
    )


def _make_columns(
    x: Array, y: Array, w: Array | None, reading: str, per_image: bool, group: Array | None, groups: int
) -> Columns:
    classes = x.shape[1] if reading == "multilabel" else 1

    def to_columns(tensor: Array) -> Array:
        """Return ``(c, n)``, or ``(images, c, pixels)`` to be counted per image."""
        if per_image:
            return tensor.reshape(x.shape[0], classes, math.prod(x.shape[1:]) // classes)
        if classes == 1:
            return tensor.reshape(1, -1)
        return move_axis(tensor, 1, 0).reshape(classes, -1)

    return Columns(to_columns(x), to_columns(y), None if w is None else to_columns(w), group, groups)


def _make_classes(x: Array, y: Array, w: Array | None, per_image: bool, group: Array | None, groups: int) -> Classes:
    if x.ndim == 2:
        return Classes(x, y, w, Layout(-1, (-2,)), group, groups)
    images, pixels = x.shape[0], math.prod(x.shape[2:])
    y = y.reshape((*x.shape[:2], pixels) if is_floating(y) else (images, pixels))
    w = None if w is None else w.reshape(images, pixels)
    layout = Layout(-2, (-1,) if per_image else (-3, -1))
    return Classes(x.reshape(*x.shape[:2], pixels), y, w, layout, group, groups)


def check_task(task: str | None) -> None:
    """Raise an error for an unknown task."""
    if task is not None and task not in TASKS:
        raise InvalidValueError(f"task must be None or one of {', '.join(map(repr, TASKS))}, got {quote(task)}")


def read_task(logits: Array, target: Array, task: Task | None) -> Task:
    """Return which task the shapes mean.

    Raises:
        InvalidValueError: They fit no task, or two.
    """
    check_task(task)
    if 0 in logits.shape[1:2]:
        raise InvalidValueError(f"logits {_shape(logits)} have no class; only the batch may be empty")
    shape, labels = tuple(logits.shape), tuple(logits.shape[:1] + logits.shape[2:])
    same, by_label = tuple(target.shape) == shape, tuple(target.shape) == labels
    whole = not is_floating(target)
    one_column = logits.ndim == 1 or (logits.ndim > 1 and shape[1] == 1)
    can_be: dict[Task, bool] = {
        "binary": (one_column and (same or by_label or _is_squeezed(target, logits)))
        or (task == "binary" and logits.ndim > 0 and same),
        "multiclass": not one_column
        and logits.ndim > 1
        and ((by_label and whole) or same or has_channel(logits, target)),
        "multilabel": not one_column and logits.ndim > 1 and same,
    }
    if task is not None:
        if not can_be[task]:
            raise InvalidValueError(_no_reading(logits, target, f"do not fit task={task!r}", by_label and not whole))
        return task
    if not any(can_be.values()):
        raise InvalidValueError(_no_reading(logits, target, "fit no task", by_label and not whole))
    if can_be["multilabel"] and logits.ndim > 2:
        raise InvalidValueError(
            f"logits and target {_shape(logits)} can be read as multilabel (each class a yes or no) or as multiclass "
            "with soft targets (class shares that sum to 1); say which with task='multilabel' or task='multiclass'. "
            "One mask per image is (n, 1, height, width): logits.unsqueeze(1)"
        )
    return next(reading for reading in PRECEDENCE if can_be[reading])


def has_channel(logits: Array, target: Array) -> bool:
    """Return whether class numbers of images have a channel of their own, ``(n, 1, height, width)``."""
    shape = tuple(logits.shape)
    return len(shape) > 2 and shape[1] > 1 and tuple(target.shape) == (shape[0], 1, *shape[2:])


def without_channel(logits: Array, target: Array, validate: bool | None) -> Array:
    """Return class numbers of images without a channel of their own, which MONAI's images have, often as floats.

    Args:
        logits: The outputs of the model.
        target: The labels.
        validate: Whether to check the values.

    Returns:
        Integers ``(n, height, width)`` for a target ``(n, 1, height, width)`` of several classes, or the target.

    Raises:
        InvalidValueError: Class numbers are fractions.
    """
    if not has_channel(logits, target):
        return target
    labels = target[:, 0]
    if not is_floating(labels):
        return labels
    numbers = cast(labels, namespace(labels).int64)
    if looks_at_values(logits, validate) and is_false((numbers == labels).all()):
        raise InvalidValueError(
            f"class numbers {_shape(target)} must be whole, got fractions; shares of classes have the logits' shape"
        )
    return numbers


def _class_target(target: Array, logits: Array) -> Array:
    """Return class numbers as int64, which indexing needs, or class shares of the logits' type."""
    return cast(target, logits.dtype if target.shape == logits.shape else namespace(target).int64)


def _is_squeezed(target: Array, logits: Array) -> bool:
    """Return whether a target is ``(n, 1)`` and the logits are ``(n,)``."""
    return logits.ndim == 1 and tuple(target.shape) == (*logits.shape, 1)


def _no_reading(logits: Array, target: Array, what: str, fractional_labels: bool) -> str:
    if fractional_labels and logits.ndim > 1 and logits.shape[1] > 1:
        return f"multiclass labels must be integers, got {target.dtype}; use target.long()"
    hint = "; add a batch axis with unsqueeze(0)" if logits.ndim == 0 else ""
    shape, labels = tuple(logits.shape), tuple(target.shape)
    if len(shape) > 2 and labels == shape[:-1]:
        return (
            f"logits {shape} with target {labels} {what}: the class axis is the second one, not the last. "
            "Use logits.movedim(-1, 1), or for tokens logits.flatten(0, 1) with target.flatten()"
        )
    if logits.ndim and target.ndim and logits.shape[0] != target.shape[0]:
        hint = f"; they differ in length, {logits.shape[0]} and {target.shape[0]}"
    return f"logits {_shape(logits)} with target {_shape(target)} {what}{hint}. Possible: {READINGS}"


def _ignore(ignore_index: int, x: Array, y: Array, w: Array | None, *, class_axis: bool) -> tuple[Array, Array, Array]:
    """Give ignored samples weight 0, and the logit 0, because 0 times NaN is NaN."""
    if class_axis and is_floating(y):
        raise InvalidValueError("ignore_index needs labels; with soft targets give the samples to ignore weight 0")
    kept = y != ignore_index
    weight = cast(kept, x.dtype) if w is None else where(kept, w, 0.0)
    kept_logits = kept[:, None] if class_axis else kept.reshape(x.shape)
    return where(kept_logits, x, 0.0), where(kept, y, 0), weight


def spread_weight(weight: Array, wanted: tuple[int, ...], samples: tuple[int, ...]) -> Array:
    """Expand weights per sample, or per row of the batch, to the shape ``wanted`` of all entries.

    Raises:
        InvalidValueError: The weights have another shape.
    """
    shape, n = tuple(weight.shape), samples[0]
    if shape == wanted:
        return weight
    if len(samples) > 1 and shape == (n, 1, *samples[1:]):  # one channel, as labels of images may have
        weight, shape = weight[:, 0], samples
    if shape == wanted:
        return weight
    if shape == samples:
        return namespace(weight).broadcast_to(weight[:, None], wanted)
    if shape in ((n,), (n, 1)):
        return namespace(weight).broadcast_to(weight.reshape(n, *(1,) * (len(wanted) - 1)), wanted)
    raise InvalidValueError(f"weight needs one number per sample, shape {samples}, got {shape}")


def _read_groups(
    group: Array | None, groups: int | None, per_image: bool, samples: tuple[int, ...], looks: bool
) -> tuple[Array | None, int]:
    """Return the group numbers of all samples as one row, and the number of groups."""
    if group is None:
        return None, 0
    n = samples[0]
    if per_image:
        raise InvalidValueError("counts are per group or per image, not both")
    if is_floating(group) or is_boolean(group) or tuple(group.shape) != (n,):
        raise InvalidValueError(
            f"group needs one integer per row of the batch, shape ({n},), got {group.dtype} {_shape(group)}"
        )
    if groups is None:
        groups = int(group.max()) + 1 if len(group) else 0
    if looks and len(group):
        limits = extremes(group)
        if limits is not None and not (limits[0] >= 0 and limits[1] < groups):
            raise InvalidValueError(
                f"group numbers must lie in 0..{groups - 1}, got {int(limits[0])} to {int(limits[1])}"
            )
    xp = namespace(group)
    numbers = cast(group, xp.int64).reshape(n, *(1,) * (len(samples) - 1))
    return xp.broadcast_to(numbers, samples).reshape(-1), groups


def _shape(tensor: Array) -> str:
    return str(tuple(tensor.shape))
