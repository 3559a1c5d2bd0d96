"""Prior shift: the class balance of new rows without labels, estimated from their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from metricfit.core.threads import one_thread
from metricfit.decide.best import check_rows
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.guarantees.bounds import exact_bound
from metricfit.decide.held_out import HeldOut, collect_held_out
from metricfit.decide.shift.drift import Drift, detect_drift
from metricfit.errors import InvalidValueError
from metricfit.metrics.sweep import Array
from metricfit.stats.percentiles import compute_interval

Floats = NDArray[np.float64]

#: Total number of logits that the bootstrap calibrates, which limits its time to some seconds.
LOGITS_DRAWN = 10_000_000
FEWEST_RESAMPLES, MOST_RESAMPLES = 50, 200
#: Maximum number of Newton steps and of halvings of one step.
STEPS, HALVINGS = 100, 40
#: Newton's method stops once no share changes by more than this.
TOLERANCE = 1e-10
#: Weight of the penalty that keeps shares which the rows do not determine where they were.
PENALTY = 1e-9


@dataclass(frozen=True)
class PriorShift:
    """The class balance of new rows, and whether it explains their scores.

    Attributes:
        shares: The estimated share of each class, ``(c,)``; of two classes the positive one is second.
        intervals: The 95 % bootstrap interval of each share, ``(c, 2)``.
        drift: Whether the scores changed in a way that another class balance does not explain.
        rows: Number of new rows.
    """

    shares: Tensor
    intervals: Tensor
    drift: Drift
    rows: int


@one_thread()
def estimate_prior_shift(held_out: HeldOut, logits: Tensor, *, seed: int = 0) -> PriorShift:
    r"""Estimate the class balance of new rows from their logits, by maximum likelihood.

    If the rows of each class look as before, a row with calibrated probabilities p has the likelihood
    :math:`\sum_c q_c p_c / \pi_c` at the new shares q, where :math:`\pi` is the mean of p over the held-out rows
    (Saerens et al. 2002; Alexandari et al. 2020). The estimate is the fixed point of their EM algorithm. It is found by
    Newton's method, because EM takes thousands of steps if the classes overlap. The logits are calibrated first;
    calibrated logits stay as they are.

    The interval is from resamples of the new rows and of the held-out rows (whole groups if there are groups), each
    calibrated again, so it includes the noise of the calibration. It is never narrower than the exact interval of a
    share whose labels are known (Clopper and Pearson 1934): resamples of rows of one class would all agree. It assumes
    that only the class balance changed.

    Cost: O((n + m) c²) per step of Newton's method and resample, some seconds in all.

    Args:
        held_out: Logits of held-out rows with labels.
        logits: Logits of new rows, ``(m, 1)`` for two classes or ``(m, c)``, by the same model.
        seed: The seed of the bootstrap.

    Returns:
        The shares with intervals, and the test for drift. Shares are at least 1 / (2 m), because no sample of m rows
        shows that a class is absent.

    Raises:
        InvalidValueError: There are no new rows, their logits are not finite, or of another number of classes.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> y = (torch.arange(4000) % 10 == 0).long()
        >>> z = 2 * torch.randn(4000, 1, generator=generator) + 4 * y[:, None] - 4
        >>> rows = HeldOut(z, y, None, None, torch.tensor([0.9, 0.1]))
        >>> as_many = torch.cat([z[y == 1], z[y == 0][:400]])
        >>> estimate_prior_shift(rows, as_many).shares.round(decimals=1)
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    if logits.dim() != 2 or logits.shape[1] != held_out.logits.shape[1] or len(logits) == 0:
        raise InvalidValueError(
            f"the class balance is estimated from at least one row of logits (m, {held_out.logits.shape[1]}); these "
            f"are {tuple(logits.shape)}"
        )
    if not bool(logits.isfinite().all()):
        raise InvalidValueError(f"{int((~logits.isfinite()).sum())} of {logits.numel()} logits are NaN or infinite")
    rng = np.random.default_rng(seed)
    new = logits.detach().double().cpu()
    everywhere = np.ones(len(new))
    shares = _estimate(held_out, held_out.weight, new, everywhere, held_out.shares.numpy())
    size = len(held_out.y) + len(new)
    resamples = int(np.clip(LOGITS_DRAWN // (size * new.shape[1]), FEWEST_RESAMPLES, MOST_RESAMPLES))
    drawn = np.empty((resamples, len(shares)))
    for resample in drawn:
        weight = torch.from_numpy(_draw_weights(len(held_out.y), held_out.groups, rng))
        weight = weight if held_out.weight is None else weight * held_out.weight.double()
        resample[:] = _estimate(held_out, weight, new, _draw_weights(len(new), None, rng), shares)
    shares = np.clip(shares, 1 / (2 * len(new)), None)
    shares = shares / shares.sum()
    intervals = [compute_interval(column, None, 0.95) for column in drawn.T]
    with_labels = [_interval_with_labels(share * len(new), len(new)) for share in shares]
    ends = [(min(low, by[0]), max(high, by[1])) for (low, high), by in zip(intervals, with_labels, strict=True)]
    return PriorShift(
        torch.from_numpy(shares),
        torch.tensor(ends, dtype=torch.float64),
        detect_drift(held_out, new, seed=seed),
        len(new),
    )


def estimate_prevalence(
    logits: Array, target: Array, new_logits: Array, *, weight: Array | None = None, groups: Any = None, seed: int = 0
) -> PriorShift:
    """Estimate the class balance of new rows without labels, for a model of your own.

    Pass the result's ``shares`` to ``best_decision(..., prevalence=...)`` to decide for the new balance.

    Args:
        logits: Logits of rows that the model was not trained on, ``(n,)`` or ``(n, 1)`` for two classes, ``(n, c)`` for
            several.
        target: Their class numbers.
        new_logits: Logits of the new rows by the same model.
        weight: One weight per row with a label.
        groups: One group per row with a label, for rows that are not independent.
        seed: The seed of the bootstrap.

    Returns:
        The shares with intervals, and the test for drift, as ``estimate_prior_shift``.

    Raises:
        InvalidValueError: The arrays do not fit each other, hold NaN, or there are no new rows.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> y = (torch.arange(2000) % 10 == 0).long()
        >>> z = torch.randn(2000, generator=generator) + 3 * y
        >>> new = torch.cat([z[y == 1], z[y == 0][:200]])
        >>> result = estimate_prevalence(z, y, new)
        >>> round(float(result.shares[1]), 1), result.drift.found
        (0.5, False)
    """
    z, y, w = check_rows(logits, target, weight)
    new = torch.as_tensor(new_logits)
    new = new[:, None] if new.dim() == 1 else new
    rows = collect_held_out(z, y, w, None if groups is None else np.asarray(groups))
    if len(rows.shares) < max(2, z.shape[1]) or not bool((rows.shares > 0).all()):
        raise InvalidValueError("the class balance of new rows needs rows of every class with labels")
    return estimate_prior_shift(rows, new, seed=seed)


def _estimate(held_out: HeldOut, weight: Tensor | None, new: Tensor, new_weight: Floats, start: Floats) -> Floats:
    """Calibrate the held-out rows with these weights, and estimate the shares of the new rows with theirs."""
    if weight is not None and len(torch.bincount(held_out.y[weight > 0]).nonzero()) < len(start):
        return start  # a class is missing from the resample
    calibration = fit_calibration(held_out.logits, held_out.y, weight)
    row_weights = torch.ones(len(held_out.y), dtype=torch.float64) if weight is None else weight.double()
    old_shares = row_weights @ _log_probabilities(calibration(held_out.logits)).exp() / row_weights.sum()
    ratios = _log_probabilities(calibration(new)) - old_shares.log()
    likelihoods = (ratios - ratios.max(1, keepdim=True).values).exp().numpy()
    counted = new_weight > 0
    return maximise_likelihood(likelihoods[counted], new_weight[counted], start)


def maximise_likelihood(likelihoods: Floats, weight: Floats, start: Floats) -> Floats:
    r"""Find the shares q of a mixture that maximise the weighted mean of :math:`\log \sum_c q_c L_{ic}`.

    The shares are at least 0. Their sum is 1 at the maximum of the mean log-likelihood less the sum of the shares,
    which is maximised here by sequential quadratic programming (Kim et al. 2020): with A the likelihoods divided by
    those of the mixture, the quadratic model at q has the gradient mean A - 1 and the Hessian -mean A A'.

    Args:
        likelihoods: The likelihood of each row in each class, ``(m, c)``, up to a factor per row.
        weight: One weight per row.
        start: The shares to start from, above 0.

    Returns:
        The shares.
    """
    weight = weight / weight.sum()
    shares = np.maximum(start, 1e-6)
    shares = shares / shares.sum()
    value = weight @ np.log(likelihoods @ shares) - 1
    for _ in range(STEPS):
        relative = likelihoods / (likelihoods @ shares)[:, None]
        weighted = relative * weight[:, None]
        hessian = weighted.T @ relative + PENALTY * np.eye(len(shares))
        gradient = weighted.sum(0) - 1 + hessian @ shares
        root = np.linalg.cholesky(hessian)
        step = nnls(root.T, np.linalg.solve(root, gradient))[0] - shares
        for _ in range(HALVINGS):
            tried = shares + step
            mixture = likelihoods @ tried
            new_value = weight @ np.log(mixture) - tried.sum() if (mixture > 0).all() else -np.inf
            if new_value >= value:
                break
            step = step / 2
        else:
            break
        shares, value = tried, new_value
        if np.abs(step).max() <= TOLERANCE:
            break
    result: Floats = shares / shares.sum()
    return result


def _interval_with_labels(successes: float, rows: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share of this many rows, if their labels were known."""
    return exact_bound(successes, rows, 0.975, ">="), exact_bound(successes, rows, 0.975, "<=")


def _draw_weights(rows: int, groups: NDArray[Any] | None, rng: np.random.Generator) -> Floats:
    """Return how often a resample draws each row, or each row's group."""
    if groups is None:
        return np.bincount(rng.integers(0, rows, rows), minlength=rows).astype(np.float64)
    number = np.unique(groups, return_inverse=True)[1]
    units = int(number.max()) + 1
    drawn: Floats = np.bincount(rng.integers(0, units, units), minlength=units)[number].astype(np.float64)
    return drawn


def _log_probabilities(logits: Tensor) -> Tensor:
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return torch.log_softmax(logits, 1)
