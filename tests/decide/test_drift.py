"""The test for drift: rarely found under prior shift alone, found where the classes themselves changed."""

import numpy as np
import pytest
from scipy.optimize import minimize

from metricfit.decide.held_out import HeldOut
from metricfit.decide.shift import _nearest_shares, detect_drift


def sample(n, shares, rng, move=0.0, spread=1.0):
    y = rng.choice(len(shares), size=n, p=shares)
    z = spread * rng.normal(size=(n, 1 if len(shares) == 2 else len(shares))) + move
    return z + 2 * (y[:, None] if len(shares) == 2 else np.eye(len(shares))[y]), y


def rows_of(z, y, weight=None, groups=None):
    return HeldOut(z, y, weight, groups, np.bincount(y) / len(y))


@pytest.mark.parametrize("sizes", [(1000, 500), (200, 3000)])
def test_prior_shift_alone_is_rarely_called_drift(sizes):
    p_values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        held_out = rows_of(*sample(sizes[0], (0.8, 0.2), rng))
        new = sample(sizes[1], (0.4, 0.6), rng)[0]
        p_values.append(detect_drift(held_out, new, seed=seed).p_value)
    assert np.mean(np.array(p_values) <= 0.01) <= 0.05  # of 60, more than 3 have probability 0.003 at a rate of 0.01
    assert 0.3 < np.mean(p_values) < 0.75  # 0.5 +- 5 standard errors


@pytest.mark.parametrize(("move", "spread"), [(1.0, 1.0), (-0.7, 1.0), (0.0, 1.7)])
def test_classes_that_moved_are_found(move, spread):
    rng = np.random.default_rng(0)
    held_out = rows_of(*sample(1000, (0.8, 0.2), rng))
    result = detect_drift(held_out, sample(1000, (0.8, 0.2), rng, move, spread)[0])
    assert result.found
    assert result.p_value <= 0.01
    assert 0.02 < result.distance < 0.5
    assert "does not explain" in str(result)


@pytest.mark.parametrize("moved", [False, True])
def test_one_class_of_several_that_moved_is_found(moved):
    rng = np.random.default_rng(1)
    held_out = rows_of(*sample(1500, (0.5, 0.3, 0.2), rng))
    z, y = sample(1500, (0.2, 0.3, 0.5), rng)
    z[y == 2, 2] -= 1.5 * moved
    result = detect_drift(held_out, z)
    assert result.found == moved
    assert str(result).startswith("the scores of the new rows changed" if moved else "another class balance explains")


def test_a_few_distinct_scores_are_compared_like_any_others():
    rng = np.random.default_rng(2)
    z, y = sample(1000, (0.7, 0.3), rng)
    held_out = rows_of(z.round(), y)
    assert not detect_drift(held_out, sample(500, (0.5, 0.5), rng)[0].round()).found
    assert detect_drift(held_out, sample(500, (0.5, 0.5), rng, 1.0)[0].round()).found


@pytest.mark.parametrize("shift", [1e6, 0.0])
def test_constant_scores_are_no_drift(shift):
    held_out = rows_of(np.zeros((100, 1)) + shift, np.arange(100) % 2)
    assert not detect_drift(held_out, np.full((50, 1), shift)).found


def test_scores_beyond_all_known_ones_are_found():
    held_out = rows_of(*sample(300, (0.5, 0.5), np.random.default_rng(0)))
    result = detect_drift(held_out, np.full((100, 1), 50.0))
    assert result.found
    assert result.distance > 0.9


def test_groups_count_as_rows():
    rng = np.random.default_rng(3)
    z, y = sample(200, (0.6, 0.4), rng)
    new = sample(300, (0.5, 0.5), rng, 0.3)[0]
    copies = np.repeat(np.arange(200), 5)
    grouped = rows_of(z[copies], y[copies], groups=copies)
    by_rows, by_groups, by_copies = (
        detect_drift(rows, new).p_value for rows in (rows_of(z, y), grouped, rows_of(z[copies], y[copies]))
    )
    assert by_groups == pytest.approx(by_rows, abs=0.15)  # the points of comparison are not quite the same
    assert by_copies < by_groups - 0.2


def test_the_scale_of_weights_does_not_matter():
    rng = np.random.default_rng(4)
    z, y = sample(200, (0.6, 0.4), rng)
    new = sample(300, (0.5, 0.5), rng)[0]
    weight = rng.uniform(0.5, 2, 200)
    results = [detect_drift(rows_of(z, y, weight=scale * weight), new) for scale in (1.0, 1000.0)]
    assert results[0].p_value == pytest.approx(results[1].p_value, abs=0.005)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_nearest_shares_are_those_of_a_general_solver(classes):
    rng = np.random.default_rng(classes)
    known = np.sort(rng.random((classes, 30)), axis=1)
    observed, scale = np.sort(rng.random(30)), rng.uniform(1, 5, 30)

    def distance(shares):
        return float(((scale * (observed - shares @ known)) ** 2).sum())

    found = _nearest_shares(known, observed, scale)
    constraint = {"type": "eq", "fun": lambda shares: shares.sum() - 1}
    start = np.full(classes, 1 / classes)
    best = minimize(distance, start, bounds=[(0, 1)] * classes, constraints=[constraint], options={"ftol": 1e-12})
    assert distance(found) <= best.fun + 1e-3 * abs(best.fun)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
