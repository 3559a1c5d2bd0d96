"""What was estimated from new rows without labels, saved with a model: their class balance, and drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import to_numpy
from metricfit.decide.shift import Drift, PriorShift
from metricfit.errors import ModelFileError, quote
from metricfit.tabular.description_checks import check_finite_number, check_whole_number

#: Before the names of its arrays.
SHIFT = "prior_shift."


def describe_shift(model: Any) -> dict[str, Any] | None:
    """Return the estimate as JSON holds it, without its arrays; None if there is none."""
    estimate = model.prior_shift_
    return None if estimate is None else {"rows": estimate.rows, "drift": vars(estimate.drift)}


def shift_arrays(model: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of the estimate."""
    estimate = model.prior_shift_
    if estimate is None:
        return {}
    return {SHIFT + name: getattr(estimate, name) for name in ("shares", "intervals")}


def restore_shift(model: Any, description: Mapping[str, Any] | None, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Set the estimate of a model whose classes are known.

    Raises:
        ModelFileError: The folder does not hold such an estimate.
    """
    if description is None:
        model.prior_shift_ = None
        return
    drift = description.get("drift") if isinstance(description, Mapping) else None
    if not isinstance(drift, Mapping) or not isinstance(drift.get("found"), bool):
        raise ModelFileError(f"model.json: prior_shift must describe drift, got {quote(description)}")
    check_whole_number("prior_shift.rows", description.get("rows"), 1)
    for name in ("p_value", "distance"):
        check_finite_number(f"prior_shift.drift.{name}", drift.get(name))
    shares, intervals = arrays.get(SHIFT + "shares"), arrays.get(SHIFT + "intervals")
    classes = len(model.classes_)
    if shares is None or intervals is None or shares.shape != (classes,) or intervals.shape != (classes, 2):
        raise ModelFileError(f"prior_shift: there must be one share and one interval for each of {classes} classes")
    model.prior_shift_ = PriorShift(
        to_numpy(shares, np.float64),
        to_numpy(intervals, np.float64),
        Drift(drift["p_value"], drift["distance"], drift["found"]),
        description["rows"],
    )
