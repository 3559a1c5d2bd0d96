"""The class balance of new rows without labels, estimated from their scores, and whether it explains these scores.

If only the class balance changed (prior shift), the scores of new rows are distributed as a mixture of the classes'
own distributions, which held-out rows with labels show. The test finds the mixture nearest to the new scores and
compares the remaining difference with the difference of samples from this mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from metricfit.core.arrays import Array, Floats, Integers, to_numpy
from metricfit.core.threads import one_thread
from metricfit.decide.bounds import exact_bound
from metricfit.decide.calibration import fit_calibration, log_softmax
from metricfit.decide.held_out import HeldOut
from metricfit.errors import InvalidValueError
from metricfit.stats.results import compute_interval

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

    shares: Floats
    intervals: Floats
    drift: Drift
    rows: int


@one_thread()
def estimate_prior_shift(held_out: HeldOut, logits: Array, *, seed: int = 0) -> PriorShift:
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
        >>> y = (np.arange(4000) % 10 == 0).astype(int)
        >>> z = 2 * np.random.default_rng(0).normal(size=(4000, 1)) + 4 * y[:, None] - 4
        >>> rows = HeldOut(z, y, None, None, np.array([0.9, 0.1]))
        >>> as_many = np.concatenate([z[y == 1], z[y == 0][:400]])
        >>> estimate_prior_shift(rows, as_many).shares.round(1)
        array([0.5, 0.5])
    """
    new = to_numpy(logits, np.float64)
    if new.ndim != 2 or new.shape[1] != held_out.logits.shape[1] or len(new) == 0:
        raise InvalidValueError(
            f"at least one row of logits (m, {held_out.logits.shape[1]}) is needed, got {new.shape}"
        )
    if not np.isfinite(new).all():
        raise InvalidValueError(f"{int((~np.isfinite(new)).sum())} of {new.size} logits are NaN or infinite")
    rng = np.random.default_rng(seed)
    everywhere = np.ones(len(new))
    shares = _estimate(held_out, held_out.weight, new, everywhere, held_out.shares)
    size = len(held_out.y) + len(new)
    resamples = int(np.clip(LOGITS_DRAWN // (size * new.shape[1]), FEWEST_RESAMPLES, MOST_RESAMPLES))
    drawn = np.empty((resamples, len(shares)))
    for resample in drawn:
        weight = _draw_weights(len(held_out.y), held_out.groups, rng)
        weight = weight if held_out.weight is None else weight * held_out.weight
        resample[:] = _estimate(held_out, weight, new, _draw_weights(len(new), None, rng), shares)
    shares = np.clip(shares, 1 / (2 * len(new)), None)
    shares = shares / shares.sum()
    intervals = [compute_interval(column, None, 0.95) for column in drawn.T]
    with_labels = [_interval_with_labels(share * len(new), len(new)) for share in shares]
    ends = [(min(low, by[0]), max(high, by[1])) for (low, high), by in zip(intervals, with_labels, strict=True)]
    return PriorShift(shares, np.array(ends), detect_drift(held_out, new, seed=seed), len(new))


def _estimate(held_out: HeldOut, weight: Floats | None, new: Floats, new_weight: Floats, start: Floats) -> Floats:
    """Calibrate the held-out rows with these weights, and estimate the shares of the new rows with theirs."""
    if weight is not None and len(np.unique(held_out.y[weight > 0])) < len(start):
        return start  # a class is missing from the resample
    calibration = fit_calibration(held_out.logits, held_out.y, weight)
    row_weights = np.ones(len(held_out.y)) if weight is None else weight
    old_shares = row_weights @ np.exp(_log_probabilities(calibration(held_out.logits))) / row_weights.sum()
    ratios = _log_probabilities(calibration(new)) - np.log(old_shares)
    likelihoods = np.exp(ratios - ratios.max(1, keepdims=True))
    counted = new_weight > 0
    return maximise_likelihood(likelihoods[counted], new_weight[counted], start)


def maximise_likelihood(likelihoods: Floats, weight: Floats, start: Floats) -> Floats:
    r"""Find the shares q of a mixture that maximise the weighted mean of :math:`\log \sum_c q_c L_{ic}`.

    The shares are at least 0. Their sum is 1 at the maximum of the mean log-likelihood less the sum of the shares,
    which is maximised here by sequential quadratic programming (Kim et al. 2020): with A the likelihoods divided by
    the mixture's, the quadratic model at q has the gradient mean A - 1 and the Hessian -mean A A'.

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


def _log_probabilities(logits: Floats) -> Floats:
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], 1)
    return log_softmax(logits)


#: Drift is reported if differences as large have at most this probability without drift.
LEVEL = 0.01
#: Number of samples from the nearest mixture, which limits the p-value from below.
RESAMPLES = 999
#: Number of scores at which distributions are compared, and the most classes whose scores are compared.
POINTS, MOST_COLUMNS = 100, 10
#: Weight of the condition that shares sum to 1, and of the penalty that determines the shares of equal classes.
WEIGHT_OF_SUM, TIE = 1e3, 1e-12


class DriftWarning(UserWarning):
    """The scores of new rows changed in a way that another class balance does not explain."""


@dataclass(frozen=True)
class Drift:
    """Whether the scores of new rows changed in a way that another class balance does not explain.

    A change that leaves the distribution of the scores as it is, for example of columns that the model does not use, is
    not found.

    Attributes:
        p_value: The probability of a difference at least as large if only the class balance changed.
        distance: The largest difference, over all scores, between the share of new rows below the score and the share
            that is expected at the class balance that fits best.
        found: Whether the p-value is at most 0.01.
    """

    p_value: float
    distance: float
    found: bool

    def __str__(self) -> str:
        if not self.found:
            return f"another class balance explains the scores of the new rows (p = {self.p_value:.2g})"
        return (
            f"the scores of the new rows changed in a way that another class balance does not explain (p = "
            f"{self.p_value:.2g}; the share of rows below a score differs by up to {self.distance:.3f} from the "
            "expected one). Rows of a class may look different from the training rows, and then probabilities, the "
            "estimated class balance and the decision may be wrong. Compare the new rows with the training rows, or "
            "label some of them and train again"
        )


def detect_drift(held_out: HeldOut, logits: Array, *, seed: int = 0) -> Drift:
    """Test whether new logits come from a mixture of the held-out classes.

    The statistic is the mean over scores of the squared difference between the distribution of the new logits and that
    of the nearest mixture, each in units of its standard error (as in the test of Anderson and Darling). The p-value is
    from samples of the nearest mixture and of the held-out classes, so the noise of both is accounted for. With several
    classes each class has a test, of the log-odds of this class against all others, and the smallest p-value is
    multiplied by their number. Held-out rows in groups count as one row per group.

    Cost: O((n + m) log(n + m)) for n held-out and m new rows, and about 0.1 s per class for the samples.

    Args:
        held_out: Logits of held-out rows with labels.
        logits: Logits of new rows, ``(m, 1)`` for two classes or ``(m, c)``, by the same model.
        seed: The seed of the samples.

    Returns:
        The result of the test.

    Example:
        >>> y = np.arange(1000) % 2
        >>> z = np.random.default_rng(0).normal(size=(1000, 1)) + y[:, None]
        >>> rows = HeldOut(z, y, None, None, np.array([0.5, 0.5]))
        >>> detect_drift(rows, z[y == 1][:300]).found, detect_drift(rows, z[:300] + 1).found
        (False, True)
    """
    rng = np.random.default_rng(seed)
    y = held_out.y
    classes, counts = np.unique(y, return_counts=True)
    members = [np.flatnonzero(y == number) for number in classes]
    weight = np.ones(len(y)) if held_out.weight is None else held_out.weight
    groups = held_out.groups
    sizes = np.array([_effective_size(weight[at], None if groups is None else groups[at]) for at in members])
    columns = [0] if logits.shape[1] == 1 else classes[np.argsort(-counts)][:MOST_COLUMNS]
    known, new = _log_odds(held_out.logits), _log_odds(to_numpy(logits, np.float64))
    p_values, distances = [], []
    for column in columns:
        samples = [(known[rows, column], weight[rows]) for rows in members]
        p_value, distance = _compare(samples, sizes, new[:, column], rng)
        p_values.append(p_value)
        distances.append(distance)
    p_value = min(1.0, len(p_values) * min(p_values))
    return Drift(p_value, distances[int(np.argmin(p_values))], p_value <= LEVEL)


def _compare(
    samples: list[tuple[Floats, Floats]], sizes: Integers, new: Floats, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the p-value and the largest difference, of weighted samples of the classes and a new sample."""
    levels = np.linspace(0, 1, POINTS // (len(samples) + 1) + 2)[1:-1]
    scores = [*(sample for sample, _ in samples), new]
    points = np.unique(np.concatenate([np.quantile(each, levels, method="lower") for each in scores]))
    known = np.stack([_distribution(scores, weight, points) for scores, weight in samples])
    observed = _distribution(new, np.ones(len(new)), points)
    shares = _nearest_shares(known, observed, np.ones(len(points)))
    variance = _variance(shares @ known, len(new)) + shares**2 @ _variance(known, sizes[:, None])
    scale = 1 / np.sqrt(variance)
    shares = _nearest_shares(known, observed, scale)
    difference = observed - shares @ known
    statistic = np.mean((scale * difference) ** 2)
    drawn = np.stack([_draw(size, each, rng) for size, each in zip(sizes, known, strict=True)], 1)
    drawn_new = _draw(len(new), shares @ known, rng)
    drawn_shares = _nearest_shares(drawn, drawn_new, scale)
    rest = drawn_new - np.einsum("bc,bck->bk", drawn_shares, drawn)
    at_least = int((np.mean((scale * rest) ** 2, axis=1) >= statistic).sum())
    return (1 + at_least) / (1 + RESAMPLES), float(np.abs(difference).max())


def _variance(distribution: Floats, size: Any) -> Floats:
    """Return the variance of a sample's distribution; two rows on each side of a point keep it above 0 in the tails."""
    smoothed = (distribution * size + 2) / (size + 4)
    variance: Floats = smoothed * (1 - smoothed) / (size + 4)
    return variance


def _nearest_shares(known: Floats, observed: Floats, scale: Floats) -> Floats:
    """Return the shares, at least 0 and summing to 1, whose mixture has the smallest scaled squared differences.

    Args:
        known: The distributions of the classes ``(..., c, points)``.
        observed: The distribution of the new rows ``(..., points)``.
        scale: The scale of each difference.
    """
    classes = known.shape[-2]
    scaled = known * scale
    heavy = WEIGHT_OF_SUM * len(scale) * scale.max() ** 2  # of the condition that the shares sum to 1
    gram = scaled @ scaled.swapaxes(-1, -2) + heavy * (1 + TIE * np.eye(classes))
    right = np.einsum("...ck,...k->...c", scaled, observed * scale) + heavy
    roots = np.linalg.cholesky(gram)
    sides = np.linalg.solve(roots, right[..., None])[..., 0]
    pairs = zip(roots.reshape(-1, classes, classes), sides.reshape(-1, classes), strict=True)
    shares = np.array([nnls(root.T, side)[0] for root, side in pairs]).reshape(right.shape)
    nearest: Floats = shares / shares.sum(-1, keepdims=True)
    return nearest


def _draw(size: int, distribution: Floats, rng: np.random.Generator) -> Floats:
    """Draw samples of this size from a distribution at some points, and return their distributions."""
    steps = np.clip(np.diff(distribution, prepend=0.0, append=1.0), 0, None)
    counts = rng.multinomial(size, steps / steps.sum(), size=RESAMPLES)
    distributions: Floats = counts.cumsum(1)[:, :-1] / size
    return distributions


def _distribution(scores: Floats, weight: Floats, points: Floats) -> Floats:
    """Return the weighted share of scores at or below each point."""
    order = np.argsort(scores)
    summed = np.append(0.0, weight[order].cumsum())
    shares: Floats = summed[np.searchsorted(scores[order], points, side="right")] / summed[-1]
    return shares


def _effective_size(weight: Floats, groups: NDArray[Any] | None) -> int:
    """Return the number of rows of equal weight, or of groups, that would have as much noise."""
    if groups is not None:
        number: Integers = np.unique(groups, return_inverse=True)[1]
        weight = np.bincount(number, weights=weight).astype(np.float64)
    return max(1, round(float(weight.sum() ** 2 / (weight**2).sum())))


def _log_odds(z: Floats) -> Floats:
    """Return the log-odds of each class against all others; of two classes for the positive one only."""
    if z.shape[1] > 1:
        log_p = log_softmax(z)
        others = [np.logaddexp.reduce(np.delete(log_p, each, axis=1), axis=1) for each in range(z.shape[1])]
        z = log_p - np.stack(others, 1)
    return z
