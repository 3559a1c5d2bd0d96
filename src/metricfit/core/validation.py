"""Checks of tensors and their values; the messages say what to do.

Types and devices are always checked. Values (labels out of range, NaN) are checked only in eager mode on the CPU or on
request, because reading a value stalls a CUDA stream and is impossible under ``torch.compile`` and ``vmap``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Set

import numpy as np

from metricfit.core.arrays import Array, is_boolean, is_floating, is_tensor
from metricfit.core.numerics import constant
from metricfit.errors import InvalidStateError, InvalidTypeError, InvalidValueError, MetricfitError, quote

#: The largest difference from 1 of a sum of class shares that counts as rounding, and the same for shares in half
#: precision.
EXACT_SUM, COARSE_SUM = 1e-3, 1e-2


class DivergedError(MetricfitError, ValueError):
    """Logits are NaN or infinite, because the model has diverged or its input holds NaN."""


def refuse_tracing() -> None:
    """Raise an error under ``torch.jit.trace``, which records one batch and would take its labels for constants."""
    if sys.modules["torch"].jit.is_tracing():
        raise InvalidStateError(
            "torch.jit.trace cannot record a loss: what depends on the labels of a batch would become a constant. "
            "Trace the model without its loss, and use torch.compile for both"
        )


def looks_at_values(logits: Array, validate: bool | None) -> bool:
    """Return whether label range and NaN are checked: by default in eager mode on the CPU."""
    if not is_tensor(logits):
        return validate is None or validate
    if sys.modules["torch"].compiler.is_compiling():
        return False
    return logits.device.type == "cpu" if validate is None else validate


def check_finite(sums: Array, logits: Array) -> None:
    """Raise an error if sums over samples are not finite. Labels and weights have been checked before."""
    total = _read(sums.sum())
    if total is None or math.isfinite(total):
        return
    check_nan_logits(logits)
    if bool(logits.isinf().any()):
        raise DivergedError(
            f"{int(logits.isinf().sum())} of {logits.numel()} logits are infinite; the model has diverged"
        )
    largest = float(logits.detach().abs().max()) if logits.numel() else 0.0
    raise InvalidValueError(
        f"the batch's sums overflow: the logits are finite, but as large as {largest:.3g}; lower the learning rate or "
        "clip gradients, scale the features, or pass logits.double()"
    )


def check_nan_logits(logits: Array) -> None:
    """Raise an error for NaN logits; it says how many there are and where the first is."""
    if not is_false(~(logits != logits).any()):
        return
    bad = (logits != logits).reshape(-1)
    first = bad.tolist().index(True)
    raise DivergedError(
        f"{int(bad.sum())} of {len(bad)} logits are NaN, the first at position {first}; the model has diverged "
        "or its input holds NaN: lower the learning rate, clip gradients, or look for NaN in the features"
    )


def is_false(flag: Array) -> bool:
    """Return whether a 0-d flag is false. Under vmap the value cannot be read, and the result is False."""
    return _read(flag) == 0


def _read(number: Array) -> float | None:
    """Return the value of a 0-d tensor, or None under vmap."""
    try:
        return float(number)
    except RuntimeError:
        return None


def extremes(tensor: Array) -> tuple[float, float] | None:
    """Return the smallest and the largest value, NaN if any value is; None under vmap."""
    if not is_tensor(tensor):
        return float(tensor.min()), float(tensor.max())
    low, high = sys.modules["torch"].aminmax(tensor.detach())
    try:
        return float(low), float(high)
    except RuntimeError:
        return None


def check_tensors(
    logits: Array, target: Array, weight: Array | None, group: Array | None = None, *, arrays: bool = False
) -> None:
    """Raise an error for arguments that are not real tensors on one device, and for logits that are integers.

    With ``arrays`` all of them may be NumPy arrays instead.
    """
    if arrays and isinstance(logits, np.ndarray) and not any(map(is_tensor, (target, weight, group))):
        _check_arrays(target=target, weight=weight, group=group)
    else:
        _check_devices(logits, target, weight, group)
    if not is_floating(logits):
        raise InvalidTypeError(
            f"logits must be floating point, got {logits.dtype}; pass the model's raw outputs, not labels or decisions"
        )


def _check_arrays(**arguments: Array | None) -> None:
    for name, array in arguments.items():
        if array is not None and not (isinstance(array, np.ndarray) and array.dtype.kind in "fiub"):
            got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise InvalidTypeError(f"logits are a NumPy array, so {name} must be an array of numbers, got {got}")


def _check_devices(logits: Array, target: Array, weight: Array | None, group: Array | None) -> None:
    if is_tensor(logits):
        refuse_tracing()
    arguments = {"logits": logits, "target": target, "weight": weight, "group": group}
    for name, tensor in arguments.items():
        if tensor is None and name in ("weight", "group"):
            continue
        if not is_tensor(tensor):
            raise InvalidTypeError(_no_tensor(name, tensor))
        if tensor.device != logits.device:
            raise InvalidValueError(
                f"logits are on {logits.device} and {name} on {tensor.device}; use {name}.to(logits.device)"
            )
        if tensor.is_complex():
            raise InvalidTypeError(f"{name} must be real, got {tensor.dtype}")


def _no_tensor(name: str, value: object) -> str:
    text = f"{name} must be a torch tensor, got {type(value).__name__}"
    if isinstance(value, Mapping):
        keys = ", ".join(map(quote, list(value)[:5]))
        chosen = "out" if "out" in value else "logits" if "logits" in value else next(iter(value), "logits")
        return f"{text} with the entries {keys}; pass one of them, such as outputs[{quote(chosen)}]"
    if hasattr(value, "logits"):
        return f"{text}; pass its logits, outputs.logits"
    if isinstance(value, tuple) or (isinstance(value, list) and any(map(is_tensor, value))):
        return f"{text} of {len(value)} entries; pass the one with the {name}, such as outputs[0]"
    return f"{text}; use torch.as_tensor({name})"


def check_labels(target: Array, classes: int | None) -> None:
    """Raise an error for labels, or class shares, that are out of range.

    Args:
        target: The labels.
        classes: Number of exclusive classes; None if each entry is a yes or no.
    """
    if is_boolean(target) or 0 in target.shape:
        return
    by_number = classes is not None and not is_floating(target)
    highest = classes - 1 if by_number and classes is not None else 1
    limits = extremes(target)
    if limits is None or (limits[0] >= 0 and limits[1] <= highest):
        return
    missing = int((target != target).sum())
    if missing:
        places = math.prod(target.shape)
        raise InvalidValueError(f"target holds NaN in {missing} of {places} places; drop those rows")
    lowest, largest = limits
    if lowest >= 0 and largest == 255 and not by_number:
        hint = "; masks of 0 and 255 are target / 255, or (target > 127).float()"
        raise InvalidValueError(f"binary labels must be 0 or 1, got values from {lowest:g} to {largest:g}{hint}")
    if by_number:
        hint = f"; pass ignore_index={lowest:g} to leave those samples out" if lowest in (-1.0, -100.0) else ""
        if lowest == 1.0 and largest == classes:
            hint = "; map labels from 1 on with target - 1"
        if largest == 255:
            hint = "; if 255 marks pixels without a label, pass ignore_index=255; masks of 0 and 255 are (target > 127)"
        raise InvalidValueError(f"{classes} classes need labels 0 to {highest}, got {lowest:g} to {largest:g}{hint}")
    hint = {(-1.0, 1.0): "; map labels -1/1 with (target + 1) / 2", (1.0, 2.0): "; map labels 1/2 with target - 1"}.get(
        (lowest, largest), ""
    )
    raise InvalidValueError(
        f"binary labels must be 0 or 1 (or probabilities between), got values from {lowest:g} to {largest:g}{hint}; "
        "ignore_index= leaves out one value"
    )


def check_shares(shares: Array, weight: Array | None, target: Array) -> None:
    """Raise an error for class shares of a sample that do not sum to 1; samples of weight 0 are not looked at.

    Args:
        shares: ``(n, c, ...)``, the share of each class.
        weight: ``(n, ...)``, if there are weights.
        target: The shares in the type that was passed, which says how much of a difference from 1 is rounding.
    """
    sums = constant(shares).sum(1)
    wrong = abs(sums - 1) > (COARSE_SUM if "float16" in str(target.dtype) else EXACT_SUM)
    if weight is not None:
        wrong = wrong & (constant(weight) != 0)
    if not is_false(~wrong.any()):
        return
    raise InvalidValueError(
        f"task='multiclass' needs class shares that sum to 1, but for {int(wrong.sum())} of "
        f"{math.prod(wrong.shape)} samples they do not; the first sum is {float(sums[wrong][0]):.4g}. If each class is "
        "a yes or no, say task='multilabel'; give samples without a class (shares that are all 0) weight 0"
    )


def per_class(numbers: Iterable[float], rule: str) -> tuple[float, ...]:
    """Return a setting with one number per class.

    Args:
        numbers: What the user passed. A pandas Series is read in the order of its index, which ``y.value_counts()``
            has the classes in; a dictionary or a set has no order of classes.
        rule: What the setting is, for the message.

    Raises:
        InvalidTypeError: It is no sequence of numbers.
    """
    try:
        numbers = numbers.sort_index() if hasattr(numbers, "sort_index") else numbers
        values = () if isinstance(numbers, (Mapping, Set, str)) else tuple(map(float, numbers))
    except (TypeError, ValueError):
        values = ()
    if not values:
        raise InvalidTypeError(f"{rule}, got {quote(numbers)}")
    return values


def check_weight(weight: Array) -> None:
    """Raise an error for weights that are negative, infinite or NaN."""
    if 0 in weight.shape:
        return
    limits = extremes(weight)
    if limits is not None and not (limits[0] >= 0 and limits[1] < math.inf):
        raise InvalidValueError(
            f"weights must be finite and at least 0, got values from {limits[0]:g} to {limits[1]:g}"
        )
