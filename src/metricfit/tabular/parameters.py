"""The estimator's parameters, checked before anything is trained."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any

from metricfit.decide.bounds import check_confidence
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.average import AVERAGES
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.checks import check_positive, check_whole

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier

QUALITIES = ("fast", "default", "best")
DECISIONS = ("auto", "plugin", "empirical")


def check_parameters(model: MetricClassifier) -> None:
    """Raise a TypeError or a ValueError that names the parameter and what it can be.

    The metric, the models and the folds are checked where they are looked up.
    """
    if model.members is not None:
        check_whole("members", model.members, 2, "folds, each held out by one model of every family")
    if model.time_budget is not None:
        check_positive("time_budget", model.time_budget, "seconds of training, or None for no limit")
    if model.calibration is not None:
        check_positive("calibration", model.calibration, "the share of the rows that is kept apart, or None")
        if model.calibration >= 1:
            raise InvalidValueError(f"calibration is a share of the rows below 1, such as 0.3; got {model.calibration}")
    if model.quality not in QUALITIES:
        raise InvalidValueError(f"quality is one of {', '.join(map(repr, QUALITIES))}; got {quote(model.quality)}")
    check_decision_parameters(model, tuple(average for average in AVERAGES if average is not None))
    if model.device is not None:
        _check_device(model.device)


def check_decision_parameters(model: Any, averages: tuple[str, ...]) -> None:
    """Raise a TypeError or a ValueError for ``n_jobs``, ``decision``, ``average`` or ``subject_to``."""
    if model.n_jobs is not None:
        _check_jobs(model.n_jobs)
    if model.decision not in DECISIONS:
        raise InvalidValueError(f"decision is one of {', '.join(map(repr, DECISIONS))}; got {quote(model.decision)}")
    if model.average not in averages:
        named = ", ".join(map(repr, averages))
        raise InvalidValueError(
            f"average is one of {named}: one value is needed to choose by; got {quote(model.average)}"
        )
    if model.subject_to is not None:
        _check_requirements(model.subject_to)
    if model.confidence is not None:
        check_confidence(model.confidence)


def threads_of(n_jobs: int | None) -> int:
    """Return how many folds are fitted at a time: -1 is one per core, -2 one less, as in scikit-learn; None is 1."""
    if n_jobs is None:
        return 1
    if n_jobs > 0:
        return int(n_jobs)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, cores + 1 + int(n_jobs))


def _check_jobs(value: Any) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidTypeError(f"n_jobs is a whole number of threads, or -1 for one per core; got {quote(value)}")
    if value == 0:
        raise InvalidValueError("n_jobs is a number of threads, or -1 for one per core; got 0")


def _check_device(value: Any) -> None:
    if not re.fullmatch(r"(cpu|cuda|mps|xpu)(:\d+)?", str(value)):
        raise InvalidValueError(
            f"device is a device of torch, such as 'cpu', 'cuda' or 'cuda:1', or None to choose it; got {quote(value)}"
        )


def _check_requirements(value: Any) -> None:
    several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for requirement in several:
        if not isinstance(requirement, (str, Requirement)):
            raise InvalidTypeError(
                f"subject_to is a requirement such as 'recall >= 0.9', a list of them, or None; got {quote(value)}"
            )
