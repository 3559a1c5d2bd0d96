"""The held-out part of a large table: stratified, and copies or groups of rows on one side."""

import numpy as np
import pytest

from metricfit.errors import InvalidValueError
from metricfit.tabular import large_rows
from metricfit.tabular.large_rows import encode_large_table, split_large_table, stratified_sample


@pytest.fixture(scope="module")
def features(frame):
    return encode_large_table(frame)[1]


def test_one_part_is_held_out(features, labels, monkeypatch):
    monkeypatch.setattr(large_rows, "HELD_OUT_ROWS", 150)
    monkeypatch.setattr(large_rows, "HELD_OUT_OF_RAREST", 20)
    ((train, held_out),) = split_large_table(features, labels, None, None, seed=0)
    assert len(held_out) == pytest.approx(150, abs=12)
    assert np.array_equal(np.sort(np.concatenate([train, held_out])), np.arange(len(labels)))
    assert labels[held_out].mean() == pytest.approx(labels.mean(), abs=0.01)
    copies = [0, *range(100, 110)]
    assert np.isin(copies, held_out).sum() in (0, len(copies))
    assert not np.array_equal(held_out, split_large_table(features, labels, None, None, seed=1)[0][1])


def test_rare_classes_have_enough_held_out_rows(features, labels, monkeypatch):
    monkeypatch.setattr(large_rows, "HELD_OUT_ROWS", 15)
    monkeypatch.setattr(large_rows, "HELD_OUT_OF_RAREST", 40)
    ((_, held_out),) = split_large_table(features, labels, None, None, seed=0)
    assert labels[held_out].sum() == pytest.approx(40, abs=3)


def test_folds_hold_out_every_row_once(features, labels):
    splits = split_large_table(features, labels, None, 3, seed=0)
    assert np.array_equal(np.sort(np.concatenate([held_out for _, held_out in splits])), np.arange(len(labels)))
    for train, held_out in splits:
        assert len(held_out) == pytest.approx(500, abs=20)
        assert not np.isin(train, held_out).any()


def test_groups_stay_together(features, labels):
    groups = np.arange(len(labels)) // 5
    ((train, held_out),) = split_large_table(features, labels, groups, None, seed=0)
    assert not set(groups[train]) & set(groups[held_out])
    with pytest.raises(InvalidValueError, match="all parts have every class"):
        split_large_table(features, labels, np.where(labels == 1, 0, 1 + groups), None, seed=0)


def test_samples_have_the_shares_of_the_classes(labels):
    rare = labels.copy()
    rare[:3] = 2
    index = np.arange(len(labels))
    sample = stratified_sample(index, rare, 150, seed=0)
    assert (rare[sample] == 1).sum() == round(150 * (rare == 1).mean())
    assert (rare[sample] == 2).sum() == 2
    assert len(np.unique(sample)) == len(sample)
    assert np.array_equal(stratified_sample(index, rare, 10**6, seed=0), index)
