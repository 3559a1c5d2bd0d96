"""Fewer folds for the tests that run a whole comparison."""

import logging

import pytest

from metricfit.tabular import row_folds


@pytest.fixture
def two_inner_folds(monkeypatch):
    """Train every family on two folds instead of eight; comparisons have no option for it."""
    monkeypatch.setattr(row_folds, "FOLDS_BY_ROWS", ((20_000, 2),))


@pytest.fixture(autouse=True)
def no_handler_is_left():
    """A command that ends with an error has no handler left, which would print what later commands log."""
    yield
    assert not logging.getLogger("metricfit").handlers
