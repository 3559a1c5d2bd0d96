"""Splits: a partition, nothing tied apart, every class everywhere, shares as asked, or a clear error."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from metricfit.data import folds, split

FRACTIONS = [(0.64, 0.16, 0.2), (0.8, 0.2), (0.5, 0.25, 0.25), (0.9, 0.05, 0.05)]


@st.composite
def tables(draw):
    """Small tables with many copies, some with groups."""
    n = draw(st.integers(8, 120))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    X = rng.integers(0, draw(st.integers(2, 60)), size=(n, 2)).astype(float)
    y = rng.permutation(np.arange(n) < draw(st.integers(1, n - 1))).astype(int)
    groups = rng.integers(0, draw(st.integers(4, n)), size=n) if draw(st.booleans()) else None
    return X, y, groups


def components(X, groups):
    """Rows tied by equality or group, by repeated relabelling: slow and plain."""
    label = np.arange(len(X))
    changed = True
    while changed:
        changed = False
        for i in range(len(X)):
            tied = (X[i] == X).all(1) | (False if groups is None else groups == groups[i])
            lowest = label[tied].min()
            changed |= bool((label[tied] != lowest).any())
            label[tied] = lowest
    return label


@settings(max_examples=120, deadline=None)
@given(tables(), st.sampled_from(FRACTIONS), st.integers(0, 100))
def test_properties(table, fractions, seed):
    X, y, groups = table
    ties = components(X, groups)
    sources = [len(np.unique(ties[y == item])) for item in np.unique(y)]
    if min(sources) < len(fractions):
        with pytest.raises(ValueError, match="can be separated"):
            split(X, y, fractions, seed=seed, groups=groups)
        return
    parts = split(X, y, fractions, seed=seed, groups=groups)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(X)))
    side = np.empty(len(X), dtype=int)
    for number, part in enumerate(parts):
        side[part] = number
    assert all(len(set(side[ties == item])) == 1 for item in np.unique(ties))
    assert all(set(y[part]) == set(y) for part in parts)
    largest = np.unique(ties, return_counts=True)[1].max()
    for part, fraction in zip(parts, fractions, strict=True):
        for label in np.unique(y):
            assert abs((y[part] == label).sum() - fraction * (y == label).sum()) <= 1 + 2 * largest


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 300), st.integers(3, 300), st.sampled_from(FRACTIONS), st.integers(0, 100))
def test_without_ties_every_class_is_exact_to_one_row(zeros, ones, fractions, seed):
    y = np.repeat([0, 1], [zeros, ones])
    assume(min(zeros, ones) * min(fractions) >= 1)
    parts = split(np.arange(len(y)), y, fractions, seed=seed)
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs((y[part] == 0).sum() - fraction * zeros) < 1
        assert abs((y[part] == 1).sum() - fraction * ones) < 1


def test_three_positives_go_to_three_parts():
    """Rounding alone would leave the smallest part without."""
    y = np.array([1] * 3 + [0] * 97)
    assert [int(y[part].sum()) for part in split(np.arange(100), y, (0.9, 0.05, 0.05), seed=0)] == [1, 1, 1]


def test_copies_are_distributed_in_proportion():
    """Half of the rows have a copy; no part is left with single rows alone."""
    X = np.concatenate([np.arange(400), np.arange(400, 600), np.arange(400, 600)])
    y = (X % 5 == 0).astype(int)
    for part, fraction in zip(split(X, y, seed=0), (0.64, 0.16, 0.2), strict=True):
        assert (X[part] >= 400).sum() == pytest.approx(400 * fraction, abs=2)


@pytest.mark.parametrize("kind", ["groups", "copies"])
def test_class_shares_are_as_close_as_those_of_scikit_learn(kind):
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 60, size=900)
    y = (rng.random(900) < 0.1).astype(int)
    X = groups[:, None] if kind == "copies" else np.arange(900)
    ours = folds(X, y, 5, seed=0, groups=None if kind == "copies" else groups)
    theirs = list(StratifiedGroupKFold(5, shuffle=True, random_state=0).split(X, y, groups))

    def spread(pairs):
        return np.array([np.std([y[fold].sum() for _, fold in pairs]), np.std([len(fold) for _, fold in pairs])])

    assert (spread(ours) <= spread(theirs) + 1).all()


def test_folds_are_a_partition_and_their_complement():
    y = np.array([1, 0, 0] * 20)
    pairs = folds(np.arange(60), y, 8, seed=3)
    np.testing.assert_array_equal(np.sort(np.concatenate([fold for _, fold in pairs])), np.arange(60))
    for rest, fold in pairs:
        assert not set(rest) & set(fold)
        assert len(rest) + len(fold) == 60


def test_seeds():
    X, y = np.arange(100), np.array([1, 0, 0, 0] * 25)
    first, again, other = (split(X, y, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_equal_rows_are_found_even_if_their_bits_differ():
    """-0.0 and 0.0, NaN of either sign, text and missing text; equal columns, not equal labels."""
    negative_nan = np.array([0xFFF8000000000000], dtype=np.uint64).view(np.float64)[0]
    frame = pd.DataFrame(
        {
            "number": [0.0, -0.0, np.nan, negative_nan, 1.0, 1.0, 2.0, 2.0] * 2,
            "text": ["a", "a", None, None, "b", "b", "a", "c"] * 2,
        }
    )
    y = np.array([0, 1] * 8)
    for seed in range(10):
        side = np.empty(16, dtype=int)
        for number, part in enumerate(split(frame, y, (0.5, 0.5), seed=seed)):
            side[part] = number
        for first, second in [(0, 1), (2, 3), (4, 5), (0, 8), (6, 14), (7, 15)]:
            assert side[first] == side[second]


def test_groups_connected_by_a_copy_stay_together():
    X = np.array([1, 2, 2, 3, *range(10, 26)])
    groups = np.array([0, 0, 1, 1, *range(10, 26)])
    y = np.array([0, 1] * 10)
    for seed in range(10):
        parts = split(X, y, (0.5, 0.5), seed=seed, groups=groups)
        assert len({number for number, part in enumerate(parts) for row in range(4) if row in part}) == 1


def test_copies_can_be_separated_on_request():
    X, y = np.zeros((40, 3)), np.array([0, 1] * 20)
    with pytest.raises(ValueError, match=r"class 0 has 1 rows or groups .*copies of a row count as one"):
        split(X, y, seed=0)
    assert [len(part) for part in split(X, y, (0.5, 0.5), seed=0, keep_duplicates_together=False)] == [20, 20]


def test_images_and_columns_of_labels_are_taken():
    parts = split(np.random.default_rng(0).random((20, 3, 4, 4)), np.array([[0], [1]] * 10), (0.5, 0.5), seed=0)
    assert [len(part) for part in parts] == [10, 10]


def test_three_classes_connected_in_a_ring_cannot_be_separated():
    y, groups = np.array([0, 1, 0, 2, 1, 2]), np.array([0, 0, 1, 1, 2, 2])
    with pytest.raises(ValueError, match="tie the classes together"):
        split(np.arange(6), y, (0.5, 0.5), seed=0, groups=groups)


def test_as_many_rows_as_the_credit_card_set():
    """Anything quadratic, or a loop over all rows and parts, would be felt here."""
    rng = np.random.default_rng(0)
    X = rng.random((284_807, 30), dtype=np.float32)
    X[-1000:] = X[:1000]
    y = (rng.random(len(X)) < 0.002).astype(int)
    parts = split(X, y, seed=0)
    assert sum(map(len, parts)) == len(X)
    side = np.empty(len(X), dtype=int)
    for number, part in enumerate(parts):
        side[part] = number
    assert (side[-1000:] == side[:1000]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fractions": (0.5, 0.4)}, "whose sum is 1"),
        ({"fractions": (1.0,)}, "two or more"),
        ({"fractions": (1.2, -0.2)}, "above 0"),
        ({"y": np.zeros(7)}, "one label for each of the 8 rows"),
        ({"y": np.array([0, 1, np.nan, 0, 1, 0, 1, 0])}, "missing labels"),
        ({"groups": np.zeros(7)}, "a group for each of the 8 rows"),
        ({"groups": np.array([None] * 8)}, "a group for each of the 8 rows"),
        ({"y": np.array([1] + [0] * 7)}, "class 1 has 1 rows or groups .* each of 2 parts needs one"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "X needs rows"),
        ({"X": pd.DataFrame({"a": []}), "y": np.zeros(0)}, "X needs rows"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    arguments = {"X": np.arange(8), "y": np.array([0, 1] * 4), "fractions": (0.5, 0.5), "groups": None} | change
    with pytest.raises(ValueError, match=message):
        split(arguments["X"], arguments["y"], arguments["fractions"], seed=0, groups=arguments["groups"])


def test_one_fold_is_refused():
    with pytest.raises(ValueError, match="k of 2 or more"):
        folds(np.arange(8), np.array([0, 1] * 4), 1, seed=0)
