"""The class balance of new rows: against EM as published, brute force, and simulations with a known balance."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit

from metricfit.decide import estimate_prevalence
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.held_out import HeldOut
from metricfit.decide.shift import estimate_prior_shift, maximise_likelihood


def gaussians(n, shares, seed, distance=2.0):
    """Scores of normal classes, one column per class (one for two classes), and class numbers."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), size=n, p=shares)
    z = rng.normal(size=(n, 1 if len(shares) == 2 else len(shares)))
    z += distance * (y[:, None] if len(shares) == 2 else np.eye(len(shares))[y])
    return z, y


def held_out(n=2000, shares=(0.9, 0.1), seed=0, **kwargs):
    z, y = gaussians(n, shares, seed)
    counts = np.bincount(y, minlength=len(shares))
    return HeldOut(z, y, kwargs.get("weight"), kwargs.get("groups"), counts / n)


def by_em(likelihoods, shares, steps=20_000):
    """Saerens, Latinne and Decaestecker 2002, Eq. 9 and 10."""
    for _ in range(steps):
        posterior = likelihoods * shares
        shares = (posterior / posterior.sum(1, keepdims=True)).mean(0)
    return shares


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_newton_finds_the_fixed_point_of_em(classes):
    rng = np.random.default_rng(classes)
    likelihoods = np.exp(rng.normal(size=(150, classes)) + 2 * np.eye(classes)[rng.integers(0, classes, 150)])
    start = np.full(classes, 1 / classes)
    found = maximise_likelihood(likelihoods, np.ones(150), start)
    assert found == pytest.approx(by_em(likelihoods, start, 5000), abs=1e-6)


def test_newton_finds_the_largest_likelihood_of_two_classes_also_with_weights():
    rng = np.random.default_rng(0)
    likelihoods, weight = np.exp(rng.normal(size=(100, 2))), rng.integers(0, 4, 100).astype(float)

    def negative(share):
        return -weight @ np.log(likelihoods @ [1 - share, share])

    best = minimize_scalar(negative, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
    assert maximise_likelihood(likelihoods, weight, np.array([0.9, 0.1]))[1] == pytest.approx(best.x, abs=1e-6)


def test_the_maximum_may_lie_on_the_boundary():
    likelihoods = np.array([[1.0, 0.2, 0.5], [2.0, 0.1, 1.9], [1.0, 0.9, 0.99]])
    assert maximise_likelihood(likelihoods, np.ones(3), np.full(3, 1 / 3)) == pytest.approx([1, 0, 0], abs=1e-8)


@pytest.mark.parametrize(
    ("old", "new"), [((0.9, 0.1), (0.5, 0.5)), ((0.9, 0.1), (0.98, 0.02)), ((0.6, 0.3, 0.1), (0.1, 0.3, 0.6))]
)
def test_a_known_shift_is_found(old, new):
    logits, y = gaussians(3000, new, seed=1, distance=3.0)
    z, known = gaussians(3000, old, seed=2, distance=3.0)
    rows = HeldOut(z, known, None, None, np.bincount(known) / 3000)
    result = estimate_prior_shift(rows, logits)
    assert result.shares.tolist() == pytest.approx((np.bincount(y) / 3000).tolist(), abs=0.03)
    assert float(result.shares.sum()) == pytest.approx(1.0)
    for share, (low, high) in zip(new, result.intervals.tolist(), strict=True):
        assert low - 0.005 <= share <= high + 0.005
        assert high - low < 0.12
    assert not result.drift.found
    assert result.rows == 3000


def test_probabilities_for_the_estimated_balance_have_it_as_their_mean():
    z, y = gaussians(2000, (0.9, 0.1), seed=0)
    calibrated = fit_calibration(z, y, None)(z)
    rows = HeldOut(calibrated, y, None, None, np.bincount(y) / 2000)
    new = fit_calibration(z, y, None)(gaussians(1000, (0.6, 0.4), seed=1)[0])
    shares = estimate_prior_shift(rows, new).shares
    shift = (rows.with_class_shares(shares).logits - calibrated)[0]
    assert float(expit(new + shift).mean()) == pytest.approx(float(shares[1]), abs=2e-3)


def test_logits_need_not_be_calibrated():
    rows, new = held_out(), gaussians(1000, (0.6, 0.4), seed=1)[0]
    other = HeldOut(3 * rows.logits - 7, rows.y, None, None, rows.shares)
    expected = estimate_prior_shift(rows, new).shares
    assert np.allclose(estimate_prior_shift(other, 3 * new - 7).shares, expected, atol=1e-5)


def test_scores_that_say_nothing_leave_the_balance():
    rows = held_out()
    constant = HeldOut(np.zeros_like(rows.logits), rows.y, None, None, rows.shares)
    assert np.allclose(estimate_prior_shift(constant, np.zeros((50, 1))).shares, rows.shares, atol=0.01)


def test_a_class_that_is_absent_keeps_half_a_row():
    z, y = gaussians(1000, (0.5, 0.5), seed=0, distance=8.0)
    rows = HeldOut(z, y, None, None, np.bincount(y) / 1000)
    assert float(estimate_prior_shift(rows, z[y == 0][:200]).shares[1]) == pytest.approx(1 / 400, rel=0.05)


def test_weights_are_copies_of_rows():  # but for the smoothing of the labels in the calibration
    rows = held_out(600)
    weight = np.random.default_rng(0).integers(1, 4, 600)
    summed = np.bincount(rows.y, weight)
    weighted = HeldOut(rows.logits, rows.y, weight, None, summed / summed.sum())
    copied = HeldOut(rows.logits.repeat(weight, 0), rows.y.repeat(weight), None, None, weighted.shares)
    new = gaussians(300, (0.7, 0.3), seed=1)[0]
    assert np.allclose(estimate_prior_shift(weighted, new).shares, estimate_prior_shift(copied, new).shares, atol=5e-3)


def test_the_interval_is_as_wide_as_the_information_says():
    rows, new = held_out(4000, (0.5, 0.5)), gaussians(500, (0.7, 0.3), seed=1)[0]
    result = estimate_prior_shift(rows, new)
    share = float(result.shares[1])
    z = new.squeeze(1)
    densities = [np.exp(-((z - mean) ** 2) / 2) for mean in (0.0, 2.0)]
    score = (densities[1] - densities[0]) / (share * densities[1] + (1 - share) * densities[0])
    error = float(1 / np.sqrt((score**2).sum()))  # the inverse of Fisher's information, with known densities
    low, high = result.intervals[1].tolist()
    assert 2 * 1.96 * error * 0.8 < high - low < 2 * 1.96 * error * 1.6


def test_copies_of_held_out_rows_in_groups_do_not_narrow_the_interval():
    rows, new = held_out(150, (0.5, 0.5)), gaussians(4000, (0.7, 0.3), seed=1)[0]
    copies = np.tile(np.arange(150), 20)
    width = {}
    for name, groups in (("rows", None), ("groups", copies)):
        repeated = HeldOut(rows.logits[copies], rows.y[copies], None, groups, rows.shares)
        low, high = estimate_prior_shift(repeated, new).intervals[1].tolist()
        width[name] = high - low
    assert width["groups"] > 1.3 * width["rows"]


def test_the_same_seed_gives_the_same_interval():
    rows, new = held_out(300), gaussians(100, (0.7, 0.3), seed=1)[0]
    assert np.array_equal(
        estimate_prior_shift(rows, new, seed=3).intervals, estimate_prior_shift(rows, new, seed=3).intervals
    )


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros((0, 1)), "at least one row"),
        (np.zeros(5), r"\(m, 1\)"),
        (np.zeros((5, 3)), r"\(m, 1\)"),
        (np.array([[np.nan], [0.0]]), "1 of 2 logits are NaN"),
    ],
)
def test_logits_that_cannot_be_used_are_refused(logits, message):
    with pytest.raises(ValueError, match=message):
        estimate_prior_shift(held_out(100), logits)


def test_arrays_of_any_kind_are_estimated_from():
    z, y = gaussians(1000, (0.9, 0.1), seed=0)
    new = gaussians(500, (0.6, 0.4), seed=1)[0]
    expected = estimate_prior_shift(held_out(1000), new)
    for result in (
        estimate_prevalence(z.squeeze(1), y, new.squeeze(1)),
        estimate_prevalence(*(torch.from_numpy(values) for values in (z, y, new))),
    ):
        assert np.allclose(result.shares, expected.shares)
        assert np.allclose(result.intervals, expected.intervals)


def test_every_class_needs_a_labelled_row():
    z, _ = gaussians(50, (0.5, 0.3, 0.2), seed=0)
    with pytest.raises(ValueError, match="every class"):
        estimate_prevalence(z, np.arange(50) % 2, z)


@pytest.mark.parametrize("rows", [1, 50])
def test_new_rows_of_one_class_leave_room_for_others(rows):
    """If all of n labels were known to be of one class, the exact interval of its share would start at 0.025^(1/n)."""
    z, y = gaussians(400, (0.5, 0.5), seed=0, distance=20.0)
    result = estimate_prevalence(z, y, np.full(rows, 20.0))
    (_, share), (low, high) = result.shares.tolist(), result.intervals[1].tolist()
    assert low <= share <= high
    assert low <= 0.025 ** (1 / rows)
