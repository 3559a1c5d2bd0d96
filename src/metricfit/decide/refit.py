"""What was fitted to the rows before a decision, and is fitted again on resamples to judge the decision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from metricfit.decide.calibration import fit_calibration
from metricfit.decide.held_out import HeldOut
from metricfit.decide.rules import Rule, check_rule

#: Fits ensemble and calibration again with one weight per row, and returns the calibrated logits of all rows.
Refit = Callable[[Tensor], Tensor]


def default_refit(held_out: HeldOut, rule: Rule) -> Refit:
    """Return what is fitted to the rows before a decision: the calibration for the plug-in rule, otherwise nothing."""
    return partial(_calibrate_again if check_rule(rule) == "plugin" else _keep, held_out)


def _calibrate_again(held_out: HeldOut, weight: Tensor) -> Tensor:
    return fit_calibration(held_out.logits, held_out.y, weight)(held_out.logits)


def _keep(held_out: HeldOut, weight: Tensor) -> Tensor:
    return held_out.logits
