"""Fewer folds for the tests that run a whole comparison."""

import pytest

from metricfit.tabular import row_folds


@pytest.fixture
def two_inner_folds(monkeypatch):
    """Train every family on two folds instead of eight; comparisons have no option for it."""
    monkeypatch.setattr(row_folds, "FOLDS_BY_ROWS", ((20_000, 2),))
